from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from analyses.charts.batch_size import batch_size_chart, chart_description
from analyses.tests.factories import make_result, make_trial
from engine.gpus import GIB, GPUS
from engine.result import Source, Trial


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


def test_measured_and_predicted_trials_are_told_apart() -> None:
    result = make_result(source=Source.MEASURED)
    names = set(traces(batch_size_chart(result)))
    assert {"Curve (predicted)", "Fits (measured)", "Recommended (measured)"} <= names


def test_the_range_of_the_prediction_is_a_band_around_the_curve() -> None:
    low, high, *_ = batch_size_chart(make_result())["data"]
    assert (low["showlegend"], high["fill"]) == (False, "tonexty")
    curve = traces(batch_size_chart(make_result()))["Curve (predicted)"]
    assert low["x"] == high["x"] == curve["x"]
    assert all(a < b < c for a, b, c in zip(low["y"], curve["y"], high["y"], strict=True))
    assert curve["text"][0] == f" ({low['y'][0]:.2f} to {high['y'][0]:.2f})"


def test_without_ranges_there_is_no_band_and_no_word_of_one() -> None:
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


def test_speed_has_a_panel_of_its_own_where_it_is_known() -> None:
    figure = batch_size_chart(make_result())
    assert "Curve (predicted)" in traces(figure, "y2")
    assert figure["layout"]["yaxis"]["domain"][0] > figure["layout"]["yaxis2"]["domain"][1]


def test_without_step_times_the_chart_is_memory_alone() -> None:
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


def test_memory_on_the_cpu_is_named_for_what_it_is() -> None:
    trial = Trial(4, True, Source.MEASURED, peak_allocated_bytes=GIB)
    result = replace(make_result(current=4, recommended=4), trials=[trial], curve=[])
    title = batch_size_chart(result)["layout"]["yaxis"]["title"]["text"]
    assert title == "Peak allocated, GiB"


def test_a_trial_of_unknown_memory_leaves_no_hole_in_the_chart() -> None:
    unknown = Trial(300, False, Source.MEASURED, failure="out of memory")
    result = replace(make_result(), trials=[*make_result().trials, unknown])
    assert "Does not fit (measured)" not in traces(batch_size_chart(result))


def test_the_figure_is_plain_json_with_colours_of_the_stylesheet() -> None:
    text = json.dumps(batch_size_chart(make_result()), allow_nan=False)
    stylesheet = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    names = {part.split(")")[0] for part in text.split("var(")[1:]}
    assert names
    assert all(f"{name}:" in stylesheet for name in names)


def test_the_chart_is_described_in_words() -> None:
    words = chart_description(make_result())
    assert "BERT base" in words
    assert "GiB" in words


def test_a_step_that_does_not_fit_has_no_speed() -> None:
    failing = replace(make_trial(300), step_seconds=0.8, samples_per_second=375.0)
    result = make_result()
    figure = batch_size_chart(replace(result, trials=[*result.trials, failing]))
    assert "Does not fit (predicted)" in traces(figure)
    assert "Does not fit (predicted)" not in traces(figure, "y2")


def test_a_batch_far_beyond_the_limit_is_named_and_does_not_squeeze_the_others() -> None:
    figure = batch_size_chart(make_result(current=2000, curve=make_result().curve))
    assert max(max(trace["x"]) for trace in figure["data"]) < 600
    assert "Current (predicted)" not in traces(figure)
    assert "off the chart: batch 2,000" in figure["layout"]["annotations"][-1]["text"]


def test_one_marker_is_enough_if_the_current_batch_is_the_recommended_one() -> None:
    shown = traces(batch_size_chart(make_result(current=128, recommended=128)))
    assert shown["Current and recommended (predicted)"]["x"] == [128]
    assert "Current (predicted)" not in shown
