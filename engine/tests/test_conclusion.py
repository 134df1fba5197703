from __future__ import annotations

from dataclasses import replace

import pytest

from engine.answer.conclusion import Findings, conclude
from engine.answer.search import SearchOutcome
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest, Assumptions
from engine.result import GpuFacts, Source, Trial
from engine.workload import Optimizer, Workload

GPU = GpuFacts("A GPU", total_bytes=1000, usable_bytes=900)


def trial(batch_size: int, fits: bool = True, speed: float | None = 10.0) -> Trial:
    return Trial(
        batch_size=batch_size,
        fits=fits,
        source=Source.PREDICTED,
        peak_allocated_bytes=batch_size * 10,
        peak_reserved_bytes=batch_size * 11,
        device_used_bytes=batch_size * 11 + 100,
        step_seconds=None if speed is None else batch_size / speed,
        samples_per_second=speed,
    )


REQUEST = AnalysisRequest(
    Workload("bert"), "a10", 8, assumptions=Assumptions(hours_per_run=10, runs_per_year=50)
)
FOUND = Findings(
    gpu=GPU,
    outcome=SearchOutcome(64, 65, True, [trial(8), trial(64, speed=20), trial(65, False, None)]),
    current=trial(8),
    recommended=trial(32, speed=20),
    curve=[trial(1), trial(70, False, None)],
    price_per_hour_usd=2.0,
    source=Source.PREDICTED,
    caveats=["mind the gap"],
)


def test_the_speedup_is_of_speeds_and_never_of_batch_sizes() -> None:
    assert conclude(REQUEST, FOUND).speedup == 2.0


def test_savings_follow_from_the_speedup() -> None:
    savings = conclude(REQUEST, FOUND).savings
    assert savings is not None
    assert savings.gpu_hours_per_year == pytest.approx(50 * 10 / 2)
    assert savings.usd_per_year == pytest.approx(500)
    assert (savings.current_usd_per_run, savings.recommended_usd_per_run) == (20, 10)


def test_headroom_is_what_the_device_has_left() -> None:
    result = conclude(REQUEST, FOUND)
    assert result.current_headroom_bytes == 1000 - (8 * 11 + 100)
    assert result.largest_headroom_bytes == 1000 - (64 * 11 + 100)


def test_without_an_allocator_headroom_counts_tensors() -> None:
    bare = replace(trial(8), peak_reserved_bytes=None, device_used_bytes=None)
    assert conclude(REQUEST, replace(FOUND, current=bare)).current_headroom_bytes == 1000 - 80


def test_a_current_batch_that_does_not_fit_is_worth_no_money() -> None:
    result = conclude(REQUEST, replace(FOUND, current=trial(500, False, None)))
    assert result.speedup is None
    assert result.savings is None
    assert result.current_headroom_bytes is None


def test_a_gain_within_the_noise_saves_nothing() -> None:
    result = conclude(REQUEST, replace(FOUND, recommended=trial(32, speed=10.1)))
    assert result.savings is not None
    assert result.savings.usd_per_year == 0
    assert "no gain" in result.verdict


def test_the_certificate_repeats_a_model_that_is_known_by_its_config_alone() -> None:
    mine = Workload("mine", config=PRESETS["bert"].config(), optimizer=Optimizer.SGD)
    commands = conclude(replace(REQUEST, workload=mine), FOUND).certificate
    assert commands == [
        "python -m engine predict mine --gpu a10 --optimizer sgd --config config.json "
        f"--batch-size {size}"
        for size in (64, 65)
    ]


def test_each_trial_is_listed_once_in_the_order_of_trying() -> None:
    result = conclude(REQUEST, FOUND)
    assert [t.batch_size for t in result.trials] == [8, 64, 65, 32]


def test_the_answer_is_plain_json_with_the_promised_fields() -> None:
    answer = conclude(REQUEST, FOUND).to_dict()
    assert {
        "model_name",
        "workload",
        "gpu",
        "source",
        "largest_batch_size",
        "next_batch_size_fails",
        "recommended_batch_size",
        "current_batch_size",
        "current_headroom_bytes",
        "largest_headroom_bytes",
        "speedup",
        "savings",
        "trials",
    } <= answer.keys()
    assert answer["gpu"] == {"name": "A GPU", "total_bytes": 1000, "usable_bytes": 900}
    assert isinstance(answer["trials"], list)
    assert set(answer["trials"][0]) >= {
        "batch_size",
        "fits",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "device_used_bytes",
        "step_seconds",
        "samples_per_second",
        "source",
    }
