"""The chart shows why the recommended batch is the recommended one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyses.charts.batch_size import batch_size_chart, chart_description
from analyses.charts.knee import knee_of
from analyses.figures import key_figures
from analyses.tests.factories import make_global_batch, make_result, make_trial
from engine.result import AnalysisResult, Source, Trial


def _timed(batch_size: int, samples_per_second: float) -> Trial:
    return replace(make_trial(batch_size), fits=True, samples_per_second=samples_per_second)


def _result(*points: Trial, safe: int | None, recommended: int) -> AnalysisResult:
    return make_result(
        recommended=recommended, largest_batch_size=points[-1].batch_size,
        safe_batch_size=safe, trials=list(points), curve=[],
    )  # fmt: skip


def test_the_level_is_95_percent_of_the_best_speed() -> None:
    knee = knee_of(
        _result(_timed(16, 90), _timed(64, 96), _timed(200, 100), safe=200, recommended=64)
    )
    assert knee is not None
    assert (knee.enough, knee.samples_per_second, knee.is_enough) == (95, 96, True)


def test_a_batch_that_is_not_safe_sets_no_level() -> None:
    """96 is 95 % of what is safe, and that is nearly as fast as anything: it is enough."""
    result = _result(
        _timed(16, 70), _timed(64, 95), _timed(150, 99.9), _timed(200, 101),
        safe=150, recommended=64,
    )  # fmt: skip
    knee = knee_of(result)
    assert knee is not None
    assert knee.enough == pytest.approx(0.95 * 99.9)
    assert knee.is_enough
    assert "within 5 %" in key_figures(result)[1].note
    assert "knee: batch 64" in _texts(result)


def test_where_memory_allows_less_speed_that_is_said() -> None:
    result = _result(_timed(16, 70), _timed(64, 80), _timed(200, 100), safe=64, recommended=64)
    knee = knee_of(result)
    assert knee is not None
    assert not knee.is_enough
    assert "as fast as memory safely allows" in key_figures(result)[1].note
    assert "95 % of the best allowed (predicted)" in _texts(result)
    assert "a larger one would be faster" in chart_description(result)


def test_the_global_batch_is_a_limit_too() -> None:
    points = [_timed(16, 70), _timed(64, 80), _timed(200, 100)]
    result = replace(
        _result(*points, safe=200, recommended=64), global_batch=make_global_batch(size=64)
    )
    assert "as fast as memory and the global batch allow" in key_figures(result)[1].note


def test_measured_speeds_make_a_measured_level() -> None:
    result = make_result(source=Source.MEASURED)
    slow = [replace(point, samples_per_second=1.0) for point in result.curve]
    assert "95 % of the best (measured)" in _texts(replace(result, curve=slow))


def test_without_speeds_there_is_no_knee() -> None:
    def silent(trial: Trial) -> Trial:
        return replace(trial, samples_per_second=None)

    result = make_result()
    result = replace(
        result, trials=[*map(silent, result.trials)], curve=[*map(silent, result.curve)]
    )
    assert knee_of(result) is None
    assert len(batch_size_chart(result)["layout"]["shapes"]) == 1


def test_the_lines_meet_at_the_recommended_batch() -> None:
    result = make_result(recommended=128)
    level, drop = batch_size_chart(result)["layout"]["shapes"][1:]
    assert level["y0"] == level["y1"] <= drop["y1"]
    assert drop["x0"] == drop["x1"] == 128
    assert {level["yref"], drop["yref"]} == {"y2"}


def test_the_labels_keep_out_of_each_others_way() -> None:
    near_the_begin, near_the_end = (
        batch_size_chart(make_result(recommended=size))["layout"]["annotations"][1:]
        for size in (32, 240)
    )
    assert [label["xanchor"] for label in near_the_begin] == ["right", "left"]
    assert [label["xanchor"] for label in near_the_end] == ["left", "right"]


def _texts(result: AnalysisResult) -> list[str]:
    return [label["text"] for label in batch_size_chart(result)["layout"]["annotations"]]
