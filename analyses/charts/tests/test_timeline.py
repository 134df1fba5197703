from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from analyses.charts.breakdown import CATEGORIES
from analyses.charts.timeline import timeline_chart, timeline_description, timeline_note
from analyses.tests.factories import (
    PARAMETER_BYTES,
    make_global_batch,
    make_result,
    make_timeline,
)
from engine.core.sizes import GIB
from engine.interface.result import TimelinePoint
from engine.interface.workload import Workload


def test_each_used_category_is_an_area() -> None:
    figure = timeline_chart(make_result())
    names = [trace["name"] for trace in figure["data"]]
    assert names == ["Optimizer state", "Parameters", "Activations", "All tensors"]
    areas, total = figure["data"][:-1], figure["data"][-1]
    assert all(area["stackgroup"] == areas[0]["stackgroup"] for area in areas)
    assert areas[1]["y"] == [pytest.approx(PARAMETER_BYTES / GIB, abs=1e-4)] * 4
    for number, height in enumerate(total["y"]):
        assert height == pytest.approx(sum(area["y"][number] for area in areas), abs=1e-3)


def test_phases_are_marked_at_their_start_and_named_where_there_is_room() -> None:
    points = [*make_timeline(128), TimelinePoint(0.98, "inputs", {"inputs": 1})]
    layout = timeline_chart(replace(make_result(), timeline=points))["layout"]
    assert [line["x0"] for line in layout["shapes"]] == [0.1, 0.5, 0.9, 0.98]
    *phases, peak = [label["text"] for label in layout["annotations"]]
    assert phases == ["inputs", "forward", "backward", "optimizer"]
    assert peak.startswith("peak ")
    assert layout["annotations"][-1]["x"] == 0.5


def test_a_category_of_another_version_is_shown_by_its_name() -> None:
    points = [TimelinePoint(0.0, "forward", {"invented": GIB, "parameters": GIB})]
    figure = timeline_chart(replace(make_result(), timeline=points))
    assert [trace["name"] for trace in figure["data"]][:-1] == ["Parameters", "invented"]


def test_the_chart_is_plain_json_with_the_stylesheets_colours() -> None:
    categories = [name for name in CATEGORIES if name not in ("cached", "context", "free")]
    points = [TimelinePoint(0.0, "forward", dict.fromkeys(categories, GIB))]
    text = json.dumps(timeline_chart(replace(make_result(), timeline=points)), allow_nan=False)
    stylesheet = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    names = {part.split(")")[0] for part in text.split("var(")[1:]}
    assert len([name for name in names if name.startswith("--of-")]) == len(categories)
    assert all(stylesheet.count(f"{name}:") >= 1 for name in names)


def test_the_chart_has_a_description() -> None:
    words = timeline_description(make_result())
    assert "batch 128" in words
    assert "It peaks in backward" in words
    assert timeline_description(make_result(timeline=[])) == ""


def test_hidden_micro_batches_are_mentioned() -> None:
    assert timeline_note(make_result()) == ""
    accumulating = make_result(workload=Workload(model="bert", gradient_accumulation=8))
    assert timeline_note(accumulating).startswith("Shows 1 of 8 micro-batches")
    kept = make_result(global_batch=make_global_batch(accumulation=1))
    assert timeline_note(kept) == ""
    assert timeline_note(make_result(timeline=[], global_batch=make_global_batch())) == ""
