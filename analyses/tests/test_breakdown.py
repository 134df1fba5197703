from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from analyses.charts.breakdown import (
    CATEGORIES,
    LONGEST_BAR,
    breakdown_chart,
    breakdown_description,
    breakdown_rows,
    breakdown_source,
    memory_bars,
    memory_sizes,
)
from analyses.charts.layout import PlotlyDict
from analyses.tests.factories import make_result, make_trial
from engine.gpus import GIB, GPUS
from engine.result import Source, Trial

TOTAL = 10 * GIB


def test_every_byte_of_the_gpu_is_in_exactly_one_category() -> None:
    trial = make_trial(16)
    sizes = memory_sizes(trial, total_bytes=TOTAL)
    assert sum(sizes.values()) == TOTAL
    assert list(sizes) == [name for name in CATEGORIES if name in sizes]
    assert trial.peak_reserved_bytes is not None
    assert trial.peak_allocated_bytes is not None
    assert trial.device_used_bytes is not None
    assert sizes["cached"] == trial.peak_reserved_bytes - trial.peak_allocated_bytes
    assert sizes["context"] == trial.device_used_bytes - trial.peak_reserved_bytes
    assert sizes["free"] == TOTAL - trial.device_used_bytes


def test_without_a_breakdown_tensors_are_one_piece() -> None:
    trial = replace(make_trial(16), breakdown={})
    sizes = memory_sizes(trial, TOTAL)
    assert sizes["tensors"] == trial.peak_allocated_bytes
    assert set(sizes) == {"tensors", "cached", "context", "free"}


def test_a_trial_on_the_cpu_only_has_tensors() -> None:
    trial = Trial(4, True, Source.MEASURED, peak_allocated_bytes=GIB)
    assert memory_sizes(trial, TOTAL) == {"tensors": GIB, "free": 9 * GIB}


def test_the_bars_stack_without_gaps_up_to_what_is_used() -> None:
    current, recommended = memory_bars(make_result(current=16, recommended=128))
    assert (current.role, current.batch_size) == ("current", 16)
    assert (recommended.role, recommended.batch_size) == ("recommended", 128)
    for bar in (current, recommended):
        assert bar.limit == 100
        end = 0.0
        for segment in bar.segments:
            assert segment.start == pytest.approx(end, abs=0.01)
            end = segment.start + segment.width
        assert end < 100


def test_the_bar_of_a_batch_that_does_not_fit_exceeds_the_gpus_limit() -> None:
    current, recommended = memory_bars(make_result(current=384))
    assert not current.fits
    assert current.limit == recommended.limit < 100
    last = current.segments[-1]
    assert last.start + last.width == pytest.approx(100, abs=0.01)
    assert "free" not in current.sizes
    assert "does not fit" in current.summary


def test_a_batch_of_unknown_memory_has_an_empty_bar_that_says_so() -> None:
    result = make_result(current=384)
    unknown = Trial(384, False, Source.MEASURED, failure="out of memory")
    result = replace(result, trials=[unknown, *result.trials[1:]])
    current = memory_bars(result)[0]
    assert current.segments == []
    assert "unknown" in current.summary
    assert current.source is Source.MEASURED


def test_a_recommended_current_batch_has_one_bar() -> None:
    (bar,) = memory_bars(make_result(current=128, recommended=128))
    assert bar.role == "recommended"
    assert bar.title == "Current and recommended batch"


def test_the_table_has_a_row_for_each_category_of_any_bar() -> None:
    bars = memory_bars(make_result(current=384))
    rows = {row.category: row for row in breakdown_rows(bars)}
    assert rows["free"].cells[0] == (None, "current")
    free, role = rows["free"].cells[1]
    assert free is not None
    assert role == "recommended"
    assert "tensors" not in rows


def test_the_bar_of_a_far_too_large_batch_is_cut_off() -> None:
    current, recommended = memory_bars(make_result(current=2000))
    assert current.is_cut
    assert not recommended.is_cut
    assert current.limit == pytest.approx(100 / LONGEST_BAR, abs=0.01)
    last = current.segments[-1]
    assert last.start + last.width == pytest.approx(100, abs=0.01)


def _chart(**changes: object) -> PlotlyDict:
    chart = breakdown_chart(make_result(**changes))  # type: ignore[arg-type]  # its fields
    assert chart is not None
    return chart


def test_the_areas_add_up_to_the_device_used() -> None:
    *areas, total = _chart()["data"]
    for at, batch_size in enumerate(total["x"]):
        used = make_trial(batch_size).device_used_bytes
        assert used is not None
        assert total["y"][at] == pytest.approx(used / GIB, abs=1e-4)
        assert sum(area["y"][at] for area in areas) == pytest.approx(total["y"][at], abs=1e-2)


def test_constant_categories_lie_below_growing_ones() -> None:
    names = [area["name"] for area in _chart()["data"]]
    assert names.index("Parameters") < names.index("Activations") < names.index("Cached, unused")
    assert "Free" not in names


def test_the_gpus_memory_and_both_batches_are_marked() -> None:
    layout = _chart(current=16, recommended=128)["layout"]
    assert layout["shapes"][0]["y0"] == GPUS["a10"].total_bytes / GIB
    assert [shape["x0"] for shape in layout["shapes"][1:]] == [128, 16]
    texts = [label["text"] for label in layout["annotations"]]
    assert texts[1:] == ["recommended 128", "current 16"]


def test_a_label_is_placed_on_the_side_with_room() -> None:
    recommended, current = _chart(current=16, recommended=240)["layout"]["annotations"][1:]
    assert (recommended["xanchor"], current["xanchor"]) == ("right", "left")


def test_one_batch_is_marked_once() -> None:
    assert len(_chart(current=128, recommended=128)["layout"]["shapes"]) == 2


def test_a_batch_far_beyond_the_limit_does_not_squeeze_the_others() -> None:
    chart = _chart(current=2000, curve=make_result().curve)
    assert max(chart["data"][-1]["x"]) < 600
    assert len(chart["layout"]["shapes"]) == 2


def test_measured_points_do_not_dent_a_predicted_curve() -> None:
    result = make_result(source=Source.MEASURED)
    assert breakdown_source(result) is Source.PREDICTED
    predicted = [point.batch_size for point in result.curve]
    assert _chart(source=Source.MEASURED)["data"][-1]["x"] == predicted


def test_without_a_curve_the_chart_uses_the_trials() -> None:
    result = make_result(source=Source.MEASURED, curve=[])
    assert breakdown_source(result) is Source.MEASURED
    chart = breakdown_chart(result)
    assert chart is not None
    assert 128 in chart["data"][-1]["x"]


@pytest.mark.parametrize("kept", [0, 1])
def test_one_point_makes_no_chart(kept: int) -> None:
    def bare(trial: Trial) -> Trial:
        return replace(trial, breakdown={})

    result = make_result()
    curve = [*result.curve[:kept], *map(bare, result.curve[kept:])]
    result = replace(result, curve=curve, trials=[*map(bare, result.trials)])
    assert breakdown_chart(result) is None
    assert breakdown_description(result) == ""


def test_the_chart_has_a_description() -> None:
    said = breakdown_description(make_result())
    assert "Most of the growth is activations." in said
    assert "22.07 GiB" in said


@given(st.lists(st.sampled_from([*CATEGORIES, "invented"]), max_size=4), st.integers(0, 2**40))
def test_any_breakdown_gives_a_chart_in_json(names: list[str], size: int) -> None:
    result = make_result()
    curve = [replace(point, breakdown=dict.fromkeys(names, size)) for point in result.curve]
    result = replace(result, curve=curve, trials=[])
    json.dumps(breakdown_chart(result))
    assert isinstance(breakdown_description(result), str)


@pytest.mark.parametrize("name", [name for name in CATEGORIES if name != "free"])
def test_every_category_has_a_colour_in_each_theme(name: str) -> None:
    css = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    assert len(re.findall(rf"--of-{name}:", css)) == 3
