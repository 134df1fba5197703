"""The table of a comparison as Markdown and CSV."""

from __future__ import annotations

import csv
import io

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis
from analyses.pages.tests.compared import html_of, ids, make


def text_of(page: Client, name: str, query: str) -> str:
    return page.get(reverse(f"analyses:{name}") + query).content.decode()


def test_the_markdown_has_the_verdict_and_the_rows_of_the_page(
    page: Client, three: list[Analysis]
) -> None:
    first, _, third = three
    query = f"?ids={ids(three)}&base={third.pk}"
    response = page.get(reverse("analyses:compare-markdown") + query)
    assert response["Content-Type"] == "text/markdown; charset=utf-8"
    title, verdict, table = response.content.decode().strip().split("\n\n")
    assert title == "## BERT base"
    assert "cheaper per sample than" in verdict
    head, rule, *rows = table.splitlines()
    assert head.startswith(f"|  | NVIDIA A10 (#{first.pk}) | ")
    assert head.endswith(f"(#{third.pk}, baseline) |")
    assert rule == "| --- | --- | --- | --- |"
    labels = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert "GPU" in labels
    assert "Cost of a million samples (predicted, assumed)" in labels
    assert "Optimizer" not in labels  # the same for all
    assert "| Optimizer |" in text_of(page, "compare-markdown", f"{query}&all=1")
    assert all(row.count(" | ") == 3 for row in rows)


def test_the_button_copies_the_same_text(page: Client, three: list[Analysis]) -> None:
    query = f"?ids={ids(three)}"
    html = html_of(page, query)
    text = text_of(page, "compare-markdown", query)
    assert 'data-copy="compare-markdown"' in html
    assert html.split('id="compare-markdown" hidden>')[1].split("</pre>")[0] == text


def test_names_are_no_markup(page: Client, member: User) -> None:
    pair = [make(member), make(member)]
    Analysis.objects.filter(pk=pair[0].pk).update(measured_gpu="<b>A|B</b> *c* [d](e)")
    text = text_of(page, "compare-markdown", f"?ids={ids(pair)}")
    assert r"\<b\>A\|B\</b\> \*c\* \[d\](e)" in text


def test_the_csv_has_unrounded_numbers_with_units_and_sources(
    page: Client, three: list[Analysis]
) -> None:
    response = page.get(reverse("analyses:compare-csv") + f"?ids={ids(three)}")
    name = f"memorymark-{ids(three).replace(',', '-')}.csv"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'
    rows = {row["row"]: row for row in csv.DictReader(io.StringIO(response.content.decode()))}
    cost = rows["Cost of a million samples"]
    assert (cost["unit"], cost["sources"]) == ("USD", "predicted, assumed")
    assert float(cost[f"#{three[0].pk} BERT base · NVIDIA A10"]) > 0
    assert rows["GPU"][f"#{three[0].pk} BERT base · NVIDIA A10"] == "NVIDIA A10"


@pytest.mark.parametrize("name", ["compare-markdown", "compare-csv"])
def test_a_single_analysis_is_no_table(page: Client, three: list[Analysis], name: str) -> None:
    assert page.get(reverse(f"analyses:{name}"), {"ids": three[0].pk}).status_code == 404
