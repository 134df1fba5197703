"""The picture of memory and speed has each batch on a true scale, and its figures as text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.charts.by_batch import picture_of
from analyses.charts.picture import MEMORY, TOP, WIDTH, Fit, Picture, fit_of
from analyses.tests.factories import make_request, make_result, make_trial
from engine.answer.amounts import Answered
from engine.answer.figures import COST
from engine.interface.result import AnalysisResult
from engine.interface.tokens import tokens_of
from engine.interface.trial import Source


def shown(result: AnalysisResult) -> Picture:
    tokens = tokens_of(make_request())
    picture = picture_of(Answered(result, price_per_hour_usd=0.5, tokens=tokens))
    assert picture is not None
    return picture


def test_the_named_batches_are_marked_once_each() -> None:
    result = make_result(current=16, recommended=128)
    names = [mark.name for mark in shown(result).marks]
    assert names == [
        "current 16",
        "recommended 128",
        f"fastest that surely fits {result.fastest_batch_size}",
        f"largest that may fit {result.largest_batch_size}",
    ]
    same = make_result(current=128, recommended=128, fastest_batch_size=128)
    marks = [(mark.name, mark.role) for mark in shown(same).marks[:3]]
    assert marks == [
        ("current 128", "current"),
        ("recommended 128", "recommended"),
        ("fastest that surely fits 128", "fastest"),
    ]
    assert len({mark.x for mark in shown(same).marks[:3]}) == 1


def test_the_marks_lie_above_the_plots_on_lines_of_their_own() -> None:
    heights = [mark.y for mark in shown(make_result()).marks]
    assert len(set(heights)) == len(heights)
    assert max(heights) < TOP


@settings(deadline=None)
@given(current=st.integers(1, 500), recommended=st.sampled_from([1, 16, 128]))
def test_every_batch_stands_where_a_true_scale_has_it(current: int, recommended: int) -> None:
    picture = shown(make_result(current=current, recommended=recommended))
    sizes = [column.size for column in picture.columns]
    assert sizes == sorted(set(sizes))
    assert sizes[picture.start] == recommended
    for column in picture.columns:
        assert column.middle == pytest.approx(100 * column.size / sizes[-1], abs=0.001)
        assert column.x <= column.middle <= column.x + column.width + 0.001
    widths = sum(column.width for column in picture.columns)
    assert widths == pytest.approx(100, abs=0.1)  # one of them is under the pointer everywhere
    for tick in picture.ticks_x:
        value = int(tick.label.replace(",", ""))
        assert tick.at == pytest.approx(100 * value / sizes[-1], abs=0.001)


def test_memory_and_speed_have_axes_of_their_own_from_zero() -> None:
    picture = shown(make_result())
    assert picture.ticks_memory[0].label == "0"
    assert picture.ticks_memory[0].at == picture.floor
    assert all(TOP <= tick.at <= picture.floor for tick in picture.ticks_memory)
    assert all(picture.speed_top <= tick.at <= picture.end for tick in picture.ticks_speed)
    assert picture.floor < picture.speed_top
    assert TOP <= picture.limit_y < picture.floor
    assert picture.limit.endswith(" GiB")


def test_speeds_of_a_small_model_have_short_labels() -> None:
    fast = [
        replace(trial, samples_per_second=speed and 5e4 * speed)
        for trial in make_result().curve
        for speed in [trial.samples_per_second]
    ]
    labels = [tick.label for tick in shown(make_result(curve=fast)).ticks_speed]
    assert labels
    assert all(label[-1] in "kM" and len(label) <= 4 for label in labels)


def test_the_areas_lie_on_each_other_within_the_plot() -> None:
    below = 0.0
    for area in shown(make_result()).areas:
        points = [tuple(map(float, point.split(","))) for point in area.points.split()]
        top, floor = points[: len(points) // 2], points[len(points) // 2 :][::-1]
        assert all(0 <= x <= WIDTH for x, _ in points)
        assert floor[-1][1] == pytest.approx(MEMORY - below, abs=0.1)
        assert all(high[1] <= low[1] + 0.1 for high, low in zip(top, floor, strict=True))
        below = MEMORY - top[-1][1]


def test_where_memory_runs_out_is_marked() -> None:
    result = make_result()
    picture = shown(result)
    failing = next(column for column in picture.columns if column.fit is Fit.FAILS)
    assert failing.size == result.next_batch_size
    assert picture.over_x == failing.middle
    assert picture.over_x + picture.over_width == pytest.approx(100)


def test_the_slider_starts_at_the_recommended_batch() -> None:
    first = shown(make_result(recommended=128)).first
    assert (first.at, first.fit) == ("128", Fit.FITS)
    assert "GiB" in first.used
    assert "samples/s" in first.speed
    assert "tokens/s" in first.speed
    assert first.cost.endswith("per million samples")


@pytest.mark.parametrize("changes", [{}, {"savings": None, "speedup": None}])
def test_the_cost_of_a_batch_is_that_of_the_card_also_where_nothing_is_saved(
    changes: dict[str, Any],
) -> None:
    answered = Answered(make_result(**changes), price_per_hour_usd=0.5, gpu_count=2)
    picture = picture_of(answered)
    assert picture is not None
    assert picture.first.cost == f"{COST.shown_of(answered)} per million samples"


def test_a_batch_that_does_not_fit_has_memory_and_no_speed() -> None:
    result = make_result()
    columns = {column.size: column for column in shown(result).columns}
    failing = columns[result.next_batch_size]
    assert (failing.point.fit, failing.speed_y) == (Fit.FAILS, None)
    assert (failing.point.speed, failing.point.cost) == ("", "")
    assert failing.point.sizes


def test_every_batch_shows_every_category() -> None:
    picture = shown(make_result())
    shown_categories = {category for category, _ in picture.categories}
    assert all(column.point.sizes.keys() == shown_categories for column in picture.columns)


def test_a_batch_that_may_not_fit_is_uncertain() -> None:
    trial = replace(make_trial(16), device_used_high_bytes=2**40)
    assert fit_of(trial, 2**34) is Fit.UNCERTAIN
    assert fit_of(replace(trial, device_used_high_bytes=2**34), 2**34) is Fit.FITS


def test_a_measured_batch_counts_before_its_prediction() -> None:
    result = make_result(source=Source.MEASURED)
    sources = {column.size: column.point.source for column in shown(result).columns}
    assert sources[128] == Source.MEASURED
    assert Source.PREDICTED in sources.values()


def test_a_batch_far_beyond_the_limit_does_not_squeeze_the_others() -> None:
    picture = shown(make_result(current=4000, curve=make_result().curve))
    assert picture.columns[-1].size < 1000


def test_the_points_are_json_and_the_text_names_the_picture() -> None:
    picture = shown(make_result())
    assert json.loads(json.dumps(picture.points, allow_nan=False))
    assert "batch 128 is recommended" in picture.description
    assert "is the largest that may fit, " in picture.description


def test_a_single_batch_has_a_picture_without_a_line_of_speeds() -> None:
    trial = make_trial(1)
    picture = shown(make_result(current=1, recommended=1, trials=[trial], curve=[]))
    assert [column.middle for column in picture.columns] == [100]
    assert (picture.speed, picture.end) == ("", picture.floor)


@pytest.mark.parametrize("source", list(Source)[:2])
def test_without_memory_there_is_no_picture(source: Source) -> None:
    def bare(size: int) -> object:
        return replace(
            make_trial(size, "a10", source),
            peak_allocated_bytes=None,
            peak_reserved_bytes=None,
            device_used_bytes=None,
        )

    result = make_result(source=source)
    trials = [bare(trial.batch_size) for trial in result.trials]
    assert picture_of(Answered(replace(result, trials=trials, curve=[]))) is None  # type: ignore[arg-type]  # needs no request
