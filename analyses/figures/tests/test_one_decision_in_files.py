"""One decision in files, feeds, messages and lines to paste: the numbers of the page, unrounded."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses.figures.tests.deciding import decided, export_of, figures, finish
from analyses.figures.tests.test_one_decision import MOVES
from analyses.models import Analysis, Node
from analyses.notifications.message import of_ended
from analyses.pages.analysis.sharing import create_link
from analyses.tests.factories import make_result
from engine.core.numbers import times, usd


@pytest.fixture
def analysis(member: User, node: Node) -> Analysis:
    return decided(member)


def lines_of(page: Client, address: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export_of(page, address))))


def test_the_historys_files_have_them(page: Client, analysis: Analysis) -> None:
    found = figures(analysis)
    (row,) = json.loads(export_of(page, "/history/export.json"))
    (line,) = lines_of(page, "/history/export.csv")
    for name in ("speedup", "recommended_batch_size"):
        wanted = getattr(analysis, name)
        assert row[name] == wanted
        assert float(line[name]) == wanted
    assert row["moves"] == MOVES
    assert found.speedup == analysis.speedup


def test_the_comparisons_files_have_them(page: Client, member: User, analysis: Analysis) -> None:
    found, other = figures(analysis), finish(member, make_result(gpu="t4"), gpu="t4")
    query = f"?ids={analysis.pk},{other.pk}&all=1"
    rows = {
        row["row"]: next(value for name, value in row.items() if name.startswith(f"#{analysis.pk}"))
        for row in lines_of(page, f"/compare/table.csv{query}")
    }
    assert float(rows["Speedup over the current batch"]) == found.speedup
    assert float(rows["Savings per year"]) == found.usd_per_year
    assert rows["Recommended batch"] == str(found.batch_size)
    assert rows["Changes decided"] == ", ".join(MOVES)
    markdown = export_of(page, f"/compare/table.md{query}")
    for said in (times(found.speedup or 0), usd(found.usd_per_year), ", ".join(MOVES)):
        assert said in markdown


def test_the_files_of_savings_have_them(page: Client, analysis: Analysis) -> None:
    found = figures(analysis)
    (line,) = lines_of(page, "/savings/analyses.csv")
    assert float(line["speedup"]) == found.speedup
    assert line["recommended_batch_size"] == str(found.batch_size)
    assert line["counts_at_low_end"] == "yes"
    for name in ("usd_per_year_low", "usd_per_year_high"):
        assert float(line[name]) == pytest.approx(getattr(found, name))
    (total,) = lines_of(page, "/savings/totals.csv?by=member")
    assert float(total["potential_usd_per_year"]) == pytest.approx(found.usd_per_year_low)
    body = page.get("/api/v1/savings/").json()
    assert body["totals"]["potential"]["usd_per_year"] == pytest.approx(found.usd_per_year_low)


def test_message_inbox_and_search_have_them(page: Client, analysis: Analysis) -> None:
    found = figures(analysis)
    message = of_ended(analysis)
    assert message.payload["decision"]["speedup"] == found.speedup
    assert message.payload["decision"]["batch_size"] == found.batch_size
    assert message.text.startswith(message.payload["verdict"])
    entries: list[dict[str, Any]] = page.get("/api/v1/inbox/").json()["results"]
    (entry,) = (one for one in entries if one["analysis"] == analysis.pk)
    for said in (", ".join(MOVES), times(found.speedup or 0), usd(found.usd_per_year)):
        assert said in entry["text"]
    assert entry["text"].replace("'", "&#x27;") in page.get("/inbox/").content.decode()


def test_lines_to_paste_and_the_shared_page_have_the_batch(
    page: Client, member: User, analysis: Analysis
) -> None:
    found = figures(analysis)
    _, token = create_link(analysis, member, days=7)
    for html in (
        page.get(f"/{analysis.pk}/").content.decode(),
        Client().get(f"/shared/{token}/").content.decode(),
    ):
        lines = html.split('id="config"')[1]
        assert f"per_device_train_batch_size={found.batch_size}," in lines
        assert "bf16=True" in lines
