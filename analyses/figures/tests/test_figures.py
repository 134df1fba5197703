"""One analysis has the same text for each of its numbers wherever people see it."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from rich.console import Console

from analyses.figures.columns import stored
from analyses.models import Analysis, Status
from analyses.pages.compare.columns import columns_of
from analyses.pages.compare.rows import Cell, answer_rows
from analyses.savings.estimate import estimate_figures
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.answer.figures import (
    BY_NAME,
    FIGURES,
    LARGEST_BATCH,
    RECOMMENDED_BATCH,
    SPEED,
    SPEEDUP,
    STEP_TIME,
    USD_PER_YEAR,
)
from engine.cli.render import render_analysis
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source


def probable_gain() -> AnalysisResult:
    """A speedup that is worth a change, if only it were sure."""
    result = make_result(recommended=64)
    assert result.savings is not None
    nothing = replace(result.savings, gpu_hours_per_year=0.0, usd_per_year=0.0)
    return replace(result, speedup=1.08, speedup_low=0.98, speedup_high=1.18, savings=nothing)


RESULTS = {
    "a gain": make_result(recommended=128),
    "a large gain": make_result(current=1, recommended=256),
    "no gain": make_result(recommended=16),
    "a probable gain": probable_gain(),
    "measured": make_result(recommended=64, source=Source.MEASURED),
}
"""By what their speedups say."""


@pytest.fixture(params=list(RESULTS.values()), ids=list(RESULTS))
def analysis(request: pytest.FixtureRequest, member: User) -> Analysis:
    result: AnalysisResult = request.param
    asked = make_request(current_batch_size=result.current_batch_size)
    return make_analysis(member, Status.SUCCEEDED, result, request=asked)


def cells(analysis: Analysis) -> dict[str, Cell]:
    """The cells of an analysis in a comparison, by the number."""
    return {row.key: row.cells[0] for row in answer_rows(columns_of([analysis]), None)}


def history_cells(page: Client) -> dict[str, str]:
    """The cells of the only row of the history, by their labels."""
    columns = "&".join(f"columns={name}" for name in ("batch", "largest", "speedup", "savings"))
    html = page.get(f"{reverse('analyses:list')}?{columns}").content.decode()
    found = re.findall(r'data-label="([^"]*)">(.*?)</td>', html, re.DOTALL)
    return {label: words(cell) for label, cell in found}


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def on_terminal(result: AnalysisResult) -> str:
    out = io.StringIO()
    Console(file=out, width=100, highlight=False, markup=False).print(render_analysis(result))
    return " ".join(out.getvalue().split())


def test_the_same_numbers_are_in_the_history_the_comparison_the_page_and_the_terminal(
    page: Client, analysis: Analysis
) -> None:
    compared, listed = cells(analysis), history_cells(page)
    result = columns_of([analysis])[0].result
    assert result is not None
    detail = words(page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode())
    terminal = on_terminal(result)
    for figure in (LARGEST_BATCH, SPEEDUP, USD_PER_YEAR):
        text = compared[figure.name].text
        assert listed[figure.label] == text
        assert text in detail
    assert listed["Batch"].endswith(f"→ {compared[RECOMMENDED_BATCH.name].text}")
    for figure in (LARGEST_BATCH, RECOMMENDED_BATCH, SPEEDUP):
        assert f"{figure.label} {compared[figure.name].text}" in terminal
    if analysis.usd_per_year:
        assert compared[USD_PER_YEAR.name].text in terminal


def test_the_api_has_the_same_values_in_an_analysis_and_in_a_comparison(
    page: Client, analysis: Analysis
) -> None:
    other = make_analysis(analysis.owner, Status.SUCCEEDED, make_result(gpu="t4"))
    own = page.get(f"/api/v1/analyses/{analysis.pk}/").json()
    body = page.get(f"/api/v1/compare/?ids={analysis.pk},{other.pk}").json()
    values = {row["key"]: row["cells"][0]["value"] for row in body["answered"]}
    shared = values.keys() & own.keys()
    assert {"speedup", "usd_per_year", "largest_batch_size", "recommended_batch_size"} <= shared
    assert {name: values[name] for name in shared} == {name: own[name] for name in shared}


def test_a_speedup_is_judged_alike_in_lists_and_answers(analysis: Analysis) -> None:
    result = columns_of([analysis])[0].result
    assert result is not None
    assert stored(analysis, "speedup") == cells(analysis)["speedup"].text
    assert stored(analysis, "speedup") == estimate_figures(result)[0].value


def test_the_trials_show_the_speed_and_step_time_of_the_comparison(
    page: Client, analysis: Analysis
) -> None:
    compared = cells(analysis)
    result = columns_of([analysis])[0].result
    assert result is not None
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    row = html.split('<tr class="row-recommended">')[1].split("</tr>")[0]
    step = compared[STEP_TIME.name].text.removesuffix(" ms")
    speed = compared[SPEED.name].text
    assert step in words(row)
    assert speed in words(row)
    assert f"{step} {speed}" in on_terminal(result)


def test_the_csv_has_the_values_unrounded(page: Client, analysis: Analysis) -> None:
    text = page.get(
        reverse("analyses:export-csv") + "?columns=largest&columns=speedup&columns=savings"
    )
    (line,) = csv.DictReader(io.StringIO(text.getvalue().decode("utf-8-sig")))
    assert LARGEST_BATCH.text(float(line["largest_batch_size"])) == stored(
        analysis, LARGEST_BATCH.name
    )
    assert float(line["speedup"]) == analysis.speedup
    savings = float(line["savings_usd_per_year_at_assumed_prices"])
    assert USD_PER_YEAR.text(savings) == stored(analysis, USD_PER_YEAR.name)


def test_a_measured_speedup_within_the_noise_is_no_gain_in_a_list(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result(source=Source.MEASURED))
    analysis.speedup, analysis.has_gain = 1.06, False
    assert stored(analysis, "speedup") == "no gain"
    analysis.source = Source.PREDICTED
    assert stored(analysis, "speedup") == "probably 1.06×"


def test_each_number_is_described_once() -> None:
    names = [figure.name for figure in FIGURES]
    labels = [figure.full_label for figure in FIGURES]
    assert len(set(names)) == len(names)
    assert len(set(labels)) == len(labels)


ROOT = Path(__file__).parents[3]
LABELS = {text for one in BY_NAME.values() for text in (one.label, one.full_label)}


def python_files() -> Iterator[Path]:
    for room in ("engine", "analyses", "memorymark_site"):
        for file in (ROOT / room).rglob("*.py"):
            if "tests" not in file.parts and file != ROOT / "engine/answer/figures.py":
                yield file


def test_no_label_is_typed_again() -> None:
    typed = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for file in python_files()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in LABELS
    ]
    tags = [f">{label}<" for label in LABELS]
    typed += [
        f"{file.relative_to(ROOT)}: {tag}"
        for file in (ROOT / "templates").rglob("*.html")
        for tag in tags
        if tag in file.read_text()
    ]
    assert typed == []


HAND_FORMATS = re.compile(
    r":[^{}]*[fg]\} (ms|samples/s|tokens/s)\b"  # core.numbers.ms and rate
    r"|\$\{[^{}]*:[^{}]*f\}"  # usd
    r"|f\}(×|\\N\{MULTIPLICATION SIGN\})"  # times
)


@pytest.mark.longer
def test_no_number_is_formatted_by_hand() -> None:
    """Times, speeds, dollars and ratios have one formatter each, in ``core/numbers.py``."""
    found = [
        f"{file.relative_to(ROOT)}: {match.group()}"
        for file in python_files()
        if file != ROOT / "engine/core/numbers.py"
        for match in HAND_FORMATS.finditer(file.read_text())
    ]
    assert found == []
