"""The picture of memory and speed has a bar for each batch, and the figures of each as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.charts.by_batch import HEIGHT, TOP, Fit, Picture, fit_of, picture_of
from analyses.tests.factories import make_request, make_result, make_trial
from engine.interface.result import AnalysisResult, Source
from engine.interface.tokens import tokens_of


def shown(result: AnalysisResult) -> Picture:
    picture = picture_of(result, tokens_of(make_request()))
    assert picture is not None
    return picture


def test_the_named_batches_are_marked_once_each() -> None:
    result = make_result(current=16, recommended=128)
    names = [mark.name for mark in shown(result).marks]
    assert names == [
        "current 16",
        "recommended 128",
        f"fastest {result.fastest_batch_size}",
        f"largest {result.largest_batch_size}",
    ]
    same = make_result(current=128, recommended=128, fastest_batch_size=128)
    assert shown(same).marks[0].name == "current, recommended, fastest 128"
    assert shown(same).marks[0].role == "recommended"


def test_the_marks_lie_above_the_bars_on_lines_of_their_own() -> None:
    heights = [mark.y for mark in shown(make_result()).marks]
    assert len(set(heights)) == len(heights)
    assert max(heights) < TOP


@settings(deadline=None)
@given(current=st.integers(1, 500), recommended=st.sampled_from([1, 16, 128]))
def test_every_bar_stays_within_the_picture(current: int, recommended: int) -> None:
    picture = shown(make_result(current=current, recommended=recommended))
    for bar in picture.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= 100
        for part in bar.parts:
            assert TOP - 0.1 <= part.y <= part.y + part.height <= HEIGHT + 0.1
    sizes = [bar.size for bar in picture.bars]
    assert sizes == sorted(set(sizes))
    assert sizes[picture.start] == recommended


def test_the_slider_starts_at_the_recommended_batch() -> None:
    first = shown(make_result(recommended=128)).first
    assert (first.at, first.fit) == ("128", Fit.FITS)
    assert "GiB" in first.used
    assert "samples/s" in first.speed
    assert "tokens/s" in first.speed
    assert first.cost.endswith("per million samples")


def test_a_batch_that_does_not_fit_has_memory_and_no_speed() -> None:
    result = make_result()
    points = {bar.size: bar.point for bar in shown(result).bars}
    failing = points[result.next_batch_size]
    assert failing.fit is Fit.FAILS
    assert (failing.speed, failing.cost) == ("", "")
    assert failing.sizes


def test_every_batch_shows_every_category() -> None:
    picture = shown(make_result())
    shown_categories = {category for category, _ in picture.categories}
    assert all(bar.point.sizes.keys() == shown_categories for bar in picture.bars)


def test_a_batch_that_may_not_fit_is_uncertain() -> None:
    trial = replace(make_trial(16), device_used_high_bytes=2**40)
    assert fit_of(trial, 2**34) is Fit.UNCERTAIN
    assert fit_of(replace(trial, device_used_high_bytes=2**34), 2**34) is Fit.FITS


def test_a_measured_batch_counts_before_its_prediction() -> None:
    result = make_result(source=Source.MEASURED)
    sources = {bar.size: bar.point.source for bar in shown(result).bars}
    assert sources[128] == Source.MEASURED
    assert Source.PREDICTED in sources.values()


def test_a_batch_far_beyond_the_limit_does_not_squeeze_the_others() -> None:
    picture = shown(make_result(current=4000, curve=make_result().curve))
    assert picture.bars[-1].size < 1000


def test_the_points_are_json_and_the_text_names_the_picture() -> None:
    picture = shown(make_result())
    assert json.loads(json.dumps(picture.points, allow_nan=False))
    assert "batch 128 is recommended" in picture.description


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
    assert picture_of(replace(result, trials=trials, curve=[]), None) is None  # type: ignore[arg-type]  # needs no request
