"""The terminal output, from handmade results."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from engine.cli.render import (
    render_analysis,
    render_trial,
    where_memory_goes,
)
from engine.cli.render_catalogue import render_devices, render_models
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface.result import (
    AnalysisResult,
    Comparison,
    MeasuredOn,
    Phase,
    PhaseName,
    Savings,
)
from engine.interface.trial import GpuFacts, Source, Trial
from engine.interface.workload import Workload
from engine.models.presets import PRESETS

TOTAL = 22 * GIB
A10 = GpuFacts("NVIDIA A10", TOTAL, TOTAL - GIB // 4)
WORKLOAD = Workload("bert")


def trial(batch_size: int, *, fits: bool = True) -> Trial:
    """Sizes in sixteenths of a GiB, so that the displayed values are predictable."""
    allocated = GIB + batch_size * GIB // 16
    return Trial(
        batch_size=batch_size,
        fits=fits,
        source=Source.PREDICTED,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=allocated + GIB // 2,
        device_used_bytes=allocated + 3 * GIB // 4,
        step_seconds=0.01 + batch_size / 1000,
        samples_per_second=batch_size / (0.01 + batch_size / 1000),
        breakdown={"parameters": GIB, "optimizer_state": 0, "activations": allocated - GIB},
        failure="" if fits else "out of memory: 21.94 GiB are not there",
    )


ANALYSIS = AnalysisResult(
    model_name="BERT base",
    workload=WORKLOAD,
    gpu=A10,
    source=Source.PREDICTED,
    largest_batch_size=320,
    next_batch_size=328,
    next_batch_size_fails=True,
    recommended_batch_size=64,
    current_batch_size=16,
    current_headroom_bytes=TOTAL - 11 * GIB // 4,
    largest_headroom_bytes=GIB // 4,
    speedup=1.405,
    savings=Savings(
        source=Source.PREDICTED,
        gpu_hours_per_year=230.6,
        usd_per_year=1234.5,
        current_usd_per_run=6.88,
        recommended_usd_per_run=4.9,
        hours_per_run=8.0,
        runs_per_year=1000.0,
        price_per_hour_usd=0.86,
    ),
    verdict="Batch 320 fits, 328 does not; 64 gives at least 95 % of the best speed (predicted).",
    curve=[],
    trials=[trial(16), trial(328, fits=False), trial(320), trial(64)],
    caveats=["Nothing was run.", "Prices are [assumed] :smile:."],
)
ANALYSIS_VIEW = render_analysis(ANALYSIS)


def shown(answer: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False, emoji=False).print(answer)
    return out.getvalue()


def line(text: str, start: str) -> str:
    """The one line with this start, its words separated by single spaces."""
    (found,) = [line for line in text.splitlines() if line.strip().startswith(start)]
    return " ".join(found.split())


def test_an_analysis_starts_with_its_settings_and_verdict() -> None:
    lines = shown(ANALYSIS_VIEW).splitlines()
    assert lines[0].strip() == (
        "BERT base, fp32, adamw optimizer, train mode, sequence length 128, "
        "on NVIDIA A10 (22.00 GiB)"
    )
    assert lines[1].strip() == ANALYSIS.verdict
    text = " ".join(shown(ANALYSIS_VIEW).split())
    assert f"{ANALYSIS.verdict} Raises the global batch from 16 to 64. Learning rate: " in text


@pytest.mark.parametrize(
    "expected",
    [
        "Largest batch 320 (328 runs out of memory) predicted",
        "Recommended batch 64 predicted",
        "Current batch 16 predicted",
        "Free at current batch 19.25 GiB (88% of the GPU) predicted",
        "Free at largest batch 0.25 GiB (1% of the GPU) predicted",
        "Speedup 1.41× predicted",
        "Savings per year 231 GPU-hours, $1,230 predicted, assumed use",
        "Cost per run $6.88 → $4.90 predicted, assumed use",
        "Assumed use 1,000 runs a year of 8 h, $0.86 per GPU-hour assumed",
    ],
)
def test_each_key_number_says_where_it_comes_from(expected: str) -> None:
    text = " ".join(shown(ANALYSIS_VIEW).split())
    assert expected in text


@pytest.mark.parametrize("width", [80, 100])
def test_trials_are_sorted_by_batch_size_and_marked_with_their_roles(width: int) -> None:
    text = shown(ANALYSIS_VIEW, width)
    rows = [" ".join(row.split()) for row in text.splitlines() if " predicted" in row]
    trials = [row for row in rows if row.split()[1] in ("yes", "no")]
    trials[2] = trials[2].removesuffix(" fits")  # on a line of its own where it is narrow
    assert trials == [
        "16 yes 2.00 2.50 2.75 26.0 615 78,800 predicted current",
        "64 yes 5.00 5.50 5.75 74.0 865 111,000 predicted recommended",
        "320 yes 21.00 21.50 21.75 330 970 124,000 predicted largest that",
        "328 no 21.50 22.00 22.25 – – – predicted",
    ]
    assert "For batches that do not fit, memory is what they would need." in text


@pytest.mark.parametrize("width", [80, 100])
def test_nothing_is_truncated_or_wider_than_the_terminal(width: int) -> None:
    text = shown(ANALYSIS_VIEW, width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_brackets_and_colons_are_shown_as_they_are() -> None:
    assert "• Prices are [assumed] :smile:." in shown(ANALYSIS_VIEW)


def test_memory_at_the_recommended_batch_adds_up_to_the_gpu() -> None:
    assert where_memory_goes(trial(64), TOTAL) == [
        ("parameters", GIB),
        ("activations", 4 * GIB),
        ("cached but unused", GIB // 2),
        ("CUDA context and others", GIB // 4),
        ("free", TOTAL - 23 * GIB // 4),
    ]
    text = shown(ANALYSIS_VIEW)
    assert line(text, "free") == "free 16.25 74% ███████████████ predicted"
    assert line(text, "total") == "total 22.00 100%"


def test_missing_memory_is_negative_and_the_sum_still_holds() -> None:
    parts = where_memory_goes(trial(328, fits=False), TOTAL)
    assert parts[-1] == ("missing", -GIB // 4)
    assert sum(size for _, size in parts) == TOTAL


def test_memory_of_an_unknown_trial_is_not_shown() -> None:
    assert where_memory_goes(Trial(8, False, Source.MEASURED), TOTAL) == []


def test_a_little_memory_is_not_shown_as_zero() -> None:
    some = replace(trial(16), breakdown={"inputs": 4096, "activations": 2 * GIB - 4096})
    assert line(shown(render_trial(some, WORKLOAD, A10)), "inputs") == (
        "inputs <0.01 <1% predicted"
    )


def test_no_gain_has_no_savings() -> None:
    assert ANALYSIS.savings is not None
    none = replace(
        ANALYSIS.savings, gpu_hours_per_year=0.0, usd_per_year=0.0, recommended_usd_per_run=6.88
    )
    text = shown(
        render_analysis(
            replace(
                ANALYSIS,
                recommended_batch_size=16,
                largest_batch_size=16,
                speedup=1.0,
                savings=none,
                trials=[trial(16)],
            )
        )
    )
    assert line(text, "Savings per year") == "Savings per year none predicted, assumed use"
    assert line(text, "Cost per run") == "Cost per run $6.88 predicted, assumed use"
    assert "current, recommended, largest that fits" in " ".join(text.split())


def test_a_current_batch_that_does_not_fit_has_no_headroom_and_no_speedup() -> None:
    text = shown(
        render_analysis(
            replace(
                ANALYSIS,
                current_batch_size=328,
                current_headroom_bytes=None,
                speedup=None,
                savings=None,
            )
        )
    )
    assert line(text, "Current batch") == "Current batch 328 (does not fit) predicted"
    assert line(text, "Speedup") == "Speedup unknown: the current batch does not fit"
    assert "Free at current batch" not in text
    assert "savings" not in text


def test_a_search_that_ended_at_its_upper_bound_says_so() -> None:
    text = shown(render_analysis(replace(ANALYSIS, next_batch_size_fails=False)))
    assert line(text, "Largest batch") == "Largest batch 320 (nothing larger was tried) predicted"


def test_a_speedup_is_shown_with_its_interval_and_how_it_was_compared() -> None:
    compared = replace(
        ANALYSIS,
        source=Source.MEASURED,
        savings=None,
        speedup_low=1.38,
        speedup_high=1.43,
        comparison=Comparison([1.0] * 6, [1.4] * 6, 0.96875),
    )
    text = shown(render_analysis(compared))
    speedup = "Speedup 1.41× (range 1.38–1.43×) measured"
    assert line(text, "Speedup") == speedup
    assert "6 rounds, 97% confidence in that range" in line(text, "Interleaved runs")
    none = shown(render_analysis(replace(compared, speedup_low=0.99)))
    assert line(none, "Speedup") == "Speedup no gain (1.41×, range 0.99–1.43×) measured"


def test_a_batch_that_only_fits_with_retries_is_marked() -> None:
    trials = [replace(one, alloc_retries=3 * (one.batch_size == 320)) for one in ANALYSIS.trials]
    text = " ".join(shown(render_analysis(replace(ANALYSIS, trials=trials))).split())
    assert "Batch 320 fits, but the caching allocator had to release its cache 3 times" in text
    assert text.count("release its cache") == 1
    alone = shown(render_trial(trials[2], WORKLOAD, A10))
    assert line(alone, "Allocator retries") == "Allocator retries 3 predicted"


def test_a_measurement_says_what_it_ran_on() -> None:
    ran_on = MeasuredOn("cpu", "2.13.0", "5.23.0", 4)
    answers = (
        render_analysis(replace(ANALYSIS, measured_on=ran_on)),
        render_trial(trial(16), WORKLOAD, A10, ran_on),
    )
    for answer in answers:
        assert line(shown(answer), "Libraries") == "Libraries torch 2.13.0, transformers 5.23.0"
    assert "Measured on" not in shown(ANALYSIS_VIEW)


def measured_on_cpu(batch_size: int, *, fits: bool = True) -> Trial:
    return Trial(
        batch_size=batch_size,
        fits=fits,
        source=Source.MEASURED,
        peak_allocated_bytes=GIB if fits else None,
        step_seconds=2.5 if fits else None,
        samples_per_second=batch_size / 2.5 if fits else None,
    )


def test_a_measured_cpu_only_shows_tensors() -> None:
    assert ANALYSIS.savings is not None
    text = shown(
        render_analysis(
            replace(
                ANALYSIS,
                gpu=GpuFacts("CPU (x86_64) limited to 2.00 GiB", 2 * GIB, 2 * GIB),
                source=Source.MEASURED,
                largest_batch_size=4,
                next_batch_size=5,
                recommended_batch_size=4,
                current_batch_size=4,
                savings=replace(ANALYSIS.savings, source=Source.MEASURED, price_per_hour_usd=0.0),
                trials=[measured_on_cpu(4), measured_on_cpu(5, fits=False)],
            )
        )
    )
    assert ", on CPU (x86_64) limited to 2.00 GiB Batch" in " ".join(text.split())
    assert "4 yes 1.00 – – 2,500 1.60 205 measured current" in " ".join(text.split())
    assert "5 no – – – – – – measured" in " ".join(text.split())
    assert line(text, "tensors") == "tensors 1.00 50% ██████████ measured"
    assert line(text, "free") == "free 1.00 50% ██████████ measured"
    assert "cached" not in text
    assert "context" not in text
    assert "would need" not in text


def test_without_a_price_savings_are_in_hours() -> None:
    assert ANALYSIS.savings is not None
    text = shown(
        render_analysis(
            replace(ANALYSIS, savings=replace(ANALYSIS.savings, price_per_hour_usd=0.0))
        )
    )
    assert line(text, "Savings per year").startswith("Savings per year 231 GPU-hours predicted")
    assert "no price known" in line(text, "Assumed use")
    assert "$" not in text


def test_one_batch_that_fits_shows_its_numbers() -> None:
    text = shown(render_trial(trial(64), WORKLOAD, A10))
    assert "Batch 64 fits (predicted)." in text
    assert line(text, "Device used") == "Device used 5.75 GiB predicted"
    assert line(text, "Step time") == "Step time 74.0 ms predicted"
    assert line(text, "Speed") == "Speed 865 samples/s, 111,000 tokens/s predicted"


def test_one_batch_that_does_not_fit_says_why_and_what_it_needs() -> None:
    text = shown(render_trial(trial(328, fits=False), WORKLOAD, A10))
    assert "Batch 328 does not fit (predicted)." in text
    assert "Out of memory: 21.94 GiB are not there." in text
    assert "What it would need" in text
    assert "Step time" not in text
    assert line(text, "missing") == "missing -0.25 -1% predicted"


def test_every_model_is_listed_with_its_input_size() -> None:
    text = shown(render_models(list(PRESETS.values())))
    for preset in PRESETS.values():
        assert preset.name in text
        assert preset.hub_id in text
    assert "1 to 512 (128) tokens" in text


def test_every_gpu_is_listed_with_memory_and_assumed_price() -> None:
    text = shown(render_devices(list(GPUS.values())))
    assert line(text, "a10 ") == "a10 NVIDIA A10 22.07 21.82 8.6 yes $0.86 $0.50"
    assert line(text, "t4 ").split()[-3:] == ["no", "$0.59", "–"]
    assert "Prices are assumed" in " ".join(text.split())


def test_each_phase_has_its_peak_on_gpu_and_host_and_the_rule_it_comes_from() -> None:
    loading = Phase(PhaseName.LOADING, GIB // 2, GIB, 8, Source.COMPUTED, "All are read.")
    step = Phase(PhaseName.STEP, 5 * GIB, 0, 8, Source.PREDICTED, "Nothing stays on the host.")
    text = shown(render_analysis(replace(ANALYSIS, phases=[loading, step])))
    assert line(text, "loading") == "loading 0.50 1.00 8 computed"
    assert line(text, "training step") == "training step 5.00 0.00 8 predicted"
    assert "At batch 64, the training step needs the most GPU memory." in text
    assert "Host memory: 8.00 GiB while loading (computed), 1.00 GiB for each of 8" in text
    assert "Loading: All are read." in text
    assert "Peak memory by phase" not in shown(ANALYSIS_VIEW)
