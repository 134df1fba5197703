from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import selectors
from analyses.models import Analysis, Status, Trial
from analyses.pages.history import labels, views
from analyses.pages.history.columns import COLUMNS
from analyses.pages.tests.reading import history_of
from analyses.tests.factories import (
    make_analysis,
    make_request,
    make_result,
    make_training,
    make_user,
)
from engine.interface.trial import Source

pytestmark = pytest.mark.database

HTMX = {"HX-Request": "true"}
URL = "/api/v1/analyses/"


def ids_in(html: str) -> list[int]:
    return [int(part.split('"')[0]) for part in html.split('id="analysis-')[1:]]


def seen(html: str) -> str:
    """The address that the rows poll next."""
    rows = html.split('id="rows"')[1]
    query = rows.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    return reverse("analyses:list") + query


def csv_rows(page: Client, **query: Any) -> list[dict[str, str]]:
    exported = b"".join(page.get(reverse("analyses:export-csv"), query))
    return list(csv.DictReader(io.StringIO(exported.decode())))


@pytest.fixture
def lab(member: User) -> dict[str, Analysis]:
    """Analyses that each differ in the values the filters look at."""
    result = make_result()
    analyses = {
        "bert": make_analysis(member, Status.SUCCEEDED, result),
        "gpt2": make_analysis(
            make_user("alan"), Status.FAILED, request=make_request(model="gpt2", gpu="t4")
        ),
        "local": make_analysis(member, measured_gpu="NVIDIA H200", gpu="local"),
        "bf16": make_analysis(
            member, Status.CANCELLED, request=make_request(precision="bf16-mixed")
        ),
    }
    labels.add_tags([analyses["bert"], analyses["bf16"]], ["thesis", "chapter two"])
    labels.write_labels(analyses["gpt2"], [], "It crashed at night.", member)
    return analyses


# The table


def test_an_empty_history_offers_the_first_analysis(page: Client) -> None:
    html = history_of(page)
    assert "No analyses yet" in html
    assert html.count('class="button') == 1
    assert "<table" not in html
    assert "<form" not in html.split("<main")[1].split("</main")[0]


def test_the_history_shows_the_newest_first_with_their_savings(page: Client, member: User) -> None:
    old = make_analysis(member, Status.SUCCEEDED)
    new = make_analysis(member, Status.FAILED, request=make_request(model="gpt2", gpu="t4"))
    html = history_of(page)
    assert ids_in(html) == [new.pk, old.pk]
    for text in ("BERT base", "NVIDIA A10", "fp32", "predicted", "Succeeded", "GPT-2", "Failed"):
        assert text in html
    assert f'<strong class="good">{old.recommended_batch_size}</strong>' in html


@pytest.mark.parametrize(
    ("recommended", "shown"), [(128, "\N{MULTIPLICATION SIGN}"), (16, "no gain")]
)
def test_the_history_distinguishes_gains_from_noise(
    page: Client, member: User, recommended: int, shown: str
) -> None:
    make_analysis(member, Status.SUCCEEDED, make_result(recommended=recommended))
    assert shown in history_of(page).split('data-label="Speedup">')[1].split("<")[0]


def test_the_history_has_pages(page: Client, member: User) -> None:
    for _ in range(views.PAGE_SIZE + 1):
        make_analysis(member)
    first, second = history_of(page, model="bert"), history_of(page, page=2)
    assert len(ids_in(first)) == views.PAGE_SIZE
    assert len(ids_in(second)) == 1
    assert 'href="?model=bert&amp;page=2"' in first
    assert 'href="?page=1"' in second
    assert ids_in(history_of(page, page="nonsense")) == ids_in(first)
    beyond = history_of(page, page=3)
    assert "There is no page 3" in beyond
    assert ids_in(history_of(page, page="9" * 30)) == ids_in(first)


def test_a_long_history_is_not_counted_to_its_end(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "MAX_SORTED", 2)
    for _ in range(2):
        make_analysis(member)
    assert "2 analyses" in history_of(page)
    make_analysis(member)
    assert "More than 2 analyses" in history_of(page)


def test_a_cancelled_analysis_does_not_stay_on_cancelling(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.CANCELLING)
    address = seen(history_of(page))
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.CANCELLED)
    assert "Cancelled" in page.get(address, headers=HTMX).content.decode()


def test_the_rows_only_poll_while_something_runs(page: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    assert 'hx-trigger="every' not in history_of(page).split("</header>")[1]
    running = make_analysis(member, Status.RUNNING)
    address = seen(history_of(page, member=member.username, columns="speedup"))
    assert page.get(address, headers=HTMX).status_code == 204
    Analysis.objects.filter(pk=running.pk).update(status=Status.FAILED)
    rows = page.get(address, headers=HTMX).content.decode()
    assert rows.lstrip().startswith("<tbody")
    assert "hx-trigger" not in rows
    assert 'data-label="Speedup"' in rows
    assert 'data-label="When"' not in rows


# Filters


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"member": "alan"}, ["gpt2"]),
        ({"model": "gpt2"}, ["gpt2"]),
        ({"gpu": "t4"}, ["gpt2"]),
        ({"gpu": "local:NVIDIA H200"}, ["local"]),
        ({"gpu": "local"}, ["local"]),
        ({"status": "failed"}, ["gpt2"]),
        ({"precision": "bf16-mixed"}, ["bf16"]),
        ({"tag": "Thesis"}, ["bf16", "bert"]),
        ({"tag": "no-such-tag"}, []),
        ({"q": "thesis"}, ["bf16", "bert"]),
        ({"q": "crashed"}, ["gpt2"]),
        ({"member": "grace", "status": "succeeded"}, ["bert"]),
        ({"model": "no-such-model"}, []),
        ({"q": "GPT-2"}, ["gpt2"]),
        ({"q": "Alan"}, ["gpt2"]),
        ({"q": "h200"}, ["local"]),
        ({"q": "bert a10"}, ["bf16", "bert"]),
        ({"q": "bert t4"}, []),
        ({"q": "' OR 1=1 --"}, []),
    ],
)
def test_page_export_and_api_find_the_same_analyses(
    page: Client, lab: dict[str, Analysis], query: dict[str, str], found: list[str]
) -> None:
    expected = [lab[name].pk for name in found]
    assert ids_in(history_of(page, **query)) == expected
    exported = b"".join(page.get(reverse("analyses:export-json"), query))
    assert exported.decode().count('"id"') == len(expected)
    assert [row["id"] for row in page.get(URL, query).json()["results"]] == expected


def test_a_number_finds_its_analysis(page: Client, lab: dict[str, Analysis]) -> None:
    pk = lab["bert"].pk
    assert ids_in(history_of(page, q=f"#{pk}")) == [pk]
    assert ids_in(history_of(page, q="#" + "9" * 30)) == []


def test_date_filters_include_whole_days(page: Client, lab: dict[str, Analysis]) -> None:
    for days, (name, hour) in enumerate([("bert", 0), ("gpt2", 23), ("local", 12)], start=1):
        at = datetime(2026, 3, days, hour, 59, tzinfo=UTC)
        Analysis.objects.filter(pk=lab[name].pk).update(queued_at=at)
    query = {"date_from": "2026-03-01", "date_to": "2026-03-02"}
    assert ids_in(history_of(page, **query)) == [lab["gpt2"].pk, lab["bert"].pk]
    assert len(ids_in(history_of(page, date_to="9999-12-31"))) == 4


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"date_from": "yesterday"}, "Enter a valid date."),
        ({"status": "asleep"}, "Choose one of queued, running, "),
        ({"sort": "beauty"}, "Choose one of "),
        ({"q": "x" * 201}, "at most 200 characters"),
        ({"q": "\0"}, "Null characters"),
    ],
)
def test_an_invalid_filter_is_reported_and_finds_nothing(
    page: Client, lab: dict[str, Analysis], query: dict[str, str], message: str
) -> None:
    html = history_of(page, **query)
    assert message in html
    assert ids_in(html) == []
    for name in ("export-csv", "export-json"):
        response = page.get(reverse(f"analyses:{name}"), query)
        assert response.status_code == 400
        assert message in response.content.decode()
    assert page.get(URL, query).status_code == 400


def test_a_filter_stays_in_the_form(page: Client, lab: dict[str, Analysis]) -> None:
    html = history_of(page, model="own-model", q='"><b>')
    assert '<option value="own-model" selected>own-model</option>' in html
    assert '<option value="gpt2">GPT-2' in html
    assert "&quot;&gt;&lt;b&gt;" in html
    assert '"><b>' not in html


def test_filters_update_in_place_with_an_address_to_share(
    page: Client, lab: dict[str, Analysis]
) -> None:
    headers = HTMX | {"HX-Target": "results"}
    columns = [column.key for column in COLUMNS if column.is_usual and not column.is_fixed]
    query = {"q": "", "status": "failed", "sort": "-speedup", "page": "2", "columns": columns}
    response = page.get(reverse("analyses:list"), query, headers=headers)
    assert response["HX-Push-Url"].endswith("?status=failed&sort=-speedup")
    assert response.content.decode().startswith('<div id="results"')
    assert response["Vary"].startswith(
        "HX-Request"
    )  # or a browser would cache the fragment as the page


# Sorting and columns


@pytest.mark.longer
def test_every_column_sorts_both_ways_with_unknown_values_last(
    page: Client, lab: dict[str, Analysis]
) -> None:
    for column in COLUMNS:
        if not column.order:
            continue
        rising, falling = (ids_in(history_of(page, sort=f"{s}{column.key}")) for s in ("", "-"))
        assert len(rising) == 4
        if column.key in ("batch", "largest", "speedup", "savings"):
            assert rising[0] == falling[0] == lab["bert"].pk
        else:
            assert rising == falling[::-1]


def test_equal_rows_come_newest_first(page: Client, member: User) -> None:
    pks = [make_analysis(member).pk for _ in range(3)]
    assert ids_in(history_of(page, sort="model")) == pks[::-1]


def test_a_column_header_reverses_its_order_and_keeps_the_rest(
    page: Client, lab: dict[str, Analysis]
) -> None:
    html = history_of(page, member="grace")
    assert 'aria-sort="descending"><a href="?member=grace&amp;sort=id">#' in html
    assert '<a href="?member=grace&amp;sort=-speedup">Speedup' in html
    html = history_of(page, member="grace", sort="-speedup")
    assert 'aria-sort="descending"><a href="?member=grace&amp;sort=speedup">Speedup' in html


def test_columns_can_be_chosen(page: Client, lab: dict[str, Analysis]) -> None:
    html = history_of(page, columns=["largest"])
    body = html.split("<tbody")[1]
    assert 'data-label="Largest batch"' in body
    assert 'data-label="Source"' in body
    assert 'data-label="GPU"' not in body
    assert html.count("<th ") == 5
    assert 'value="largest" checked' in html
    assert 'value="gpu" checked' not in html
    wrong = history_of(page, columns=["beauty"])
    assert "Select a valid choice. beauty" in wrong


def test_adopted_and_verified_are_shown_unless_other_columns_are_chosen(
    page: Client, member: User
) -> None:
    adopted_at = datetime(2026, 3, 1, 8, tzinfo=UTC)
    analysis = make_analysis(member, Status.SUCCEEDED, make_result(), adopted_at=adopted_at)
    open_one = make_analysis(member, Status.SUCCEEDED, make_result(current=8))
    for one, day in ((analysis, 5), (analysis, 4), (open_one, 3)):
        ended_at = datetime(2026, 3, day, tzinfo=UTC)
        make_training(one, recorded_at=ended_at, verifies=True)
    assert '<time class="good" datetime="2026-03-04' in history_of(page)
    first, second = csv_rows(page)
    assert (first["adopted_at"], first["verified_at"]) == ("", "")  # a run alone verifies nothing
    assert second["adopted_at"] == "2026-03-01T08:00:00+00:00"
    assert second["verified_at"].startswith("2026-03-04")
    assert ids_in(history_of(page, q="verified")) == [analysis.pk]
    assert ids_in(history_of(page, q="-verified")) == [open_one.pk]
    assert "Verified</th>" not in history_of(page, columns=["adopted"])


def test_a_row_draws_its_speeds_and_an_export_has_their_numbers(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result())
    Trial.objects.filter(analysis=analysis).delete()
    for attempt, batch, speed in ((1, 32, 150.0), (1, 8, 1.0), (2, 8, 100.0), (2, 64, 200.0)):
        Trial.objects.create(
            analysis=analysis,
            attempt=attempt,
            batch_size=batch,
            fits=True,
            source=Source.PREDICTED,
            samples_per_second=speed,
        )
    make_analysis(member)  # without trials
    html = history_of(page, columns=["speeds"])
    assert html.count("<polyline") == 1
    assert 'points="2.0,8.0 27.7,5.0 62.0,2.0"' in html
    assert "100 samples/s at batch 8, 200 samples/s at batch 64" in html
    none, row = csv_rows(page, columns=["speeds"])
    assert row["samples_per_second_by_batch_size"] == "8: 100.0, 32: 150.0, 64: 200.0"
    assert none["samples_per_second_by_batch_size"] == ""


def test_rows_are_dense_unless_roomy_ones_are_wanted(page: Client, member: User) -> None:
    make_analysis(member)
    assert 'class="history stacked dense"' in history_of(page)
    html = history_of(page, density="roomy", sort="model")
    assert 'class="history stacked"' in html
    assert 'name="density" value="roomy" checked' in html
    assert 'href="?sort=-model&amp;density=roomy"' in html  # and so do links and saved views
    assert "Choose one of roomy" in history_of(page, density="tight")


def test_adopted_analyses_are_marked_and_can_be_filtered(page: Client, member: User) -> None:
    adopted = make_analysis(member, Status.SUCCEEDED, adopted_at=timezone.now())
    other = make_analysis(member, Status.SUCCEEDED)
    for word, shown, hidden in (("yes", adopted, other), ("no", other, adopted)):
        html = page.get(reverse("analyses:list"), {"adopted": word}).content.decode()
        assert f"analysis-{shown.pk}" in html
        assert f"analysis-{hidden.pk}" not in html
    html = page.get(reverse("analyses:list"), {"columns": "adopted"}).content.decode()
    assert f"{adopted.adopted_at:%Y-%m-%d}" in html
