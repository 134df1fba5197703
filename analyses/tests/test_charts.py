from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from analyses.charts.batch_size import batch_size_chart, chart_description, knee_of
from analyses.pages.answer import key_figures
from analyses.tests.factories import make_global_batch, make_result, make_trial
from engine.gpus import GIB, GPUS
from engine.result import AnalysisResult, Source, Trial


def traces(figure: dict[str, Any], axis: str = "y") -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure["data"] if trace["yaxis"] == axis}


def test_the_chart_shows_the_curve_the_trials_and_the_two_chosen_batches() -> None:
    shown = traces(batch_size_chart(make_result(current=16, recommended=128)))
    assert list(shown) == [
        "Range (predicted)",
        "Curve (predicted)",
        "Fits (predicted)",
        "Does not fit (predicted)",
        "Current (predicted)",
        "Recommended (predicted)",
    ]
    assert shown["Current (predicted)"]["x"] == [16]
    used = make_trial(16).device_used_bytes
    assert used is not None
    assert shown["Current (predicted)"]["y"] == [pytest.approx(used / GIB, abs=1e-4)]
    assert shown["Curve (predicted)"]["x"] == sorted(shown["Curve (predicted)"]["x"])


def test_measured_and_predicted_trials_look_different() -> None:
    result = make_result(source=Source.MEASURED)
    names = set(traces(batch_size_chart(result)))
    assert {"Curve (predicted)", "Fits (measured)", "Recommended (measured)"} <= names


def test_the_range_of_the_prediction_is_a_band_around_the_curve() -> None:
    low, high, *_ = batch_size_chart(make_result())["data"]
    assert (low["showlegend"], high["fill"]) == (False, "tonexty")
    curve = traces(batch_size_chart(make_result()))["Curve (predicted)"]
    assert low["x"] == high["x"] == curve["x"]
    assert all(a < b < c for a, b, c in zip(low["y"], curve["y"], high["y"], strict=True))
    assert curve["text"][0] == f" ({low['y'][0]:.2f}\N{EN DASH}{high['y'][0]:.2f})"


def test_without_ranges_there_is_no_band_and_no_mention_of_one() -> None:
    result = make_result(source=Source.MEASURED)
    result = replace(result, curve=result.trials)
    figure = batch_size_chart(result)
    assert "Range (predicted)" not in traces(figure)
    assert not any(any(trace["text"]) for trace in figure["data"])


def test_the_gpus_memory_is_a_line_across_the_memory_panel() -> None:
    layout = batch_size_chart(make_result())["layout"]
    line = layout["shapes"][0]
    assert line["y0"] == line["y1"] == GPUS["a10"].total_bytes / GIB
    assert "GiB" in layout["annotations"][0]["text"]


def test_speed_has_its_own_panel_where_it_is_known() -> None:
    figure = batch_size_chart(make_result())
    assert "Curve (predicted)" in traces(figure, "y2")
    assert figure["layout"]["yaxis"]["domain"][0] > figure["layout"]["yaxis2"]["domain"][1]


def test_without_step_times_the_chart_only_shows_memory() -> None:
    def silent(trial: Trial) -> Trial:
        return replace(trial, step_seconds=None, samples_per_second=None)

    result = make_result()
    result = replace(
        result,
        curve=[silent(trial) for trial in result.curve],
        trials=[silent(trial) for trial in result.trials],
    )
    figure = batch_size_chart(result)
    assert "yaxis2" not in figure["layout"]
    assert traces(figure, "y2") == {}


def test_memory_on_the_cpu_is_named_correctly() -> None:
    trial = Trial(4, True, Source.MEASURED, peak_allocated_bytes=GIB)
    result = replace(make_result(current=4, recommended=4), trials=[trial], curve=[])
    title = batch_size_chart(result)["layout"]["yaxis"]["title"]["text"]
    assert title == "Peak allocated, GiB"


def test_a_trial_of_unknown_memory_leaves_no_gap_in_the_chart() -> None:
    unknown = Trial(300, False, Source.MEASURED, failure="out of memory")
    result = replace(make_result(), trials=[*make_result().trials, unknown])
    assert "Does not fit (measured)" not in traces(batch_size_chart(result))


def test_the_chart_is_plain_json_with_the_stylesheets_colours() -> None:
    text = json.dumps(batch_size_chart(make_result()), allow_nan=False)
    stylesheet = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    names = {part.split(")")[0] for part in text.split("var(")[1:]}
    assert names
    assert all(f"{name}:" in stylesheet for name in names)


def test_the_chart_has_a_description() -> None:
    words = chart_description(make_result())
    assert "BERT base" in words
    assert "GiB" in words


def test_a_step_that_does_not_fit_has_no_speed() -> None:
    failing = replace(make_trial(300), step_seconds=0.8, samples_per_second=375.0)
    result = make_result()
    figure = batch_size_chart(replace(result, trials=[*result.trials, failing]))
    assert "Does not fit (predicted)" in traces(figure)
    assert "Does not fit (predicted)" not in traces(figure, "y2")


def test_a_batch_far_beyond_the_limit_is_mentioned_and_does_not_squeeze_the_others() -> None:
    figure = batch_size_chart(make_result(current=2000, curve=make_result().curve))
    assert max(max(trace["x"]) for trace in figure["data"]) < 600
    assert "Current (predicted)" not in traces(figure)
    assert "off the chart: batch 2,000" in figure["layout"]["annotations"][-1]["text"]


def test_a_recommended_current_batch_has_one_marker() -> None:
    shown = traces(batch_size_chart(make_result(current=128, recommended=128)))
    assert shown["Current and recommended (predicted)"]["x"] == [128]
    assert "Current (predicted)" not in shown


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
    """96 reaches 95% of the safe speed, which is close to the top speed, so it is enough."""
    result = _result(
        _timed(16, 70), _timed(64, 95), _timed(150, 99.9), _timed(200, 101),
        safe=150, recommended=64,
    )  # fmt: skip
    knee = knee_of(result)
    assert knee is not None
    assert knee.enough == pytest.approx(0.95 * 99.9)
    assert knee.is_enough
    assert "within 5%" in key_figures(result)[1].note
    assert "knee: batch 64" in _texts(result)


def test_a_speed_limited_by_memory_is_stated() -> None:
    result = _result(_timed(16, 70), _timed(64, 80), _timed(200, 100), safe=64, recommended=64)
    knee = knee_of(result)
    assert knee is not None
    assert not knee.is_enough
    assert "as fast as memory safely allows" in key_figures(result)[1].note
    assert "95% of the best allowed (predicted)" in _texts(result)
    assert "a larger one would be faster" in chart_description(result)


def test_a_speed_limited_by_the_global_batch_is_stated() -> None:
    points = [_timed(16, 70), _timed(64, 80), _timed(200, 100)]
    result = replace(
        _result(*points, safe=200, recommended=64), global_batch=make_global_batch(size=64)
    )
    assert "as fast as memory and the global batch allow" in key_figures(result)[1].note


def test_measured_speeds_give_a_measured_level() -> None:
    result = make_result(source=Source.MEASURED)
    slow = [replace(point, samples_per_second=1.0) for point in result.curve]
    assert "95% of the best (measured)" in _texts(replace(result, curve=slow))


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


def test_the_labels_do_not_overlap() -> None:
    near_the_begin, near_the_end = (
        batch_size_chart(make_result(recommended=size))["layout"]["annotations"][1:]
        for size in (32, 240)
    )
    assert [label["xanchor"] for label in near_the_begin] == ["right", "left"]
    assert [label["xanchor"] for label in near_the_end] == ["left", "right"]


def _texts(result: AnalysisResult) -> list[str]:
    return [label["text"] for label in batch_size_chart(result)["layout"]["annotations"]]
