"""Speedup, headroom, savings and the verdict follow from the trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.answer.conclusion import Findings, conclude, decision, verdict
from engine.answer.economics import Speedup, within
from engine.answer.recommendation import Bound
from engine.answer.search import SearchOutcome
from engine.answer.worth import Option
from engine.core.optimizers import Optimizer
from engine.interface.assumptions import Assumptions
from engine.interface.request import AnalysisRequest
from engine.interface.result import PhaseName
from engine.interface.trial import GpuFacts, Source, Trial
from engine.interface.workload import Workload
from engine.models.presets import PRESETS

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
    Workload("bert"),
    gpu="a10",
    current_batch_size=8,
    assumptions=Assumptions(hours_per_run=10, runs_per_year=50),
)
FOUND = Findings(
    gpu=GPU,
    outcome=SearchOutcome(64, 65, True, [trial(8), trial(64, speed=20), trial(65, False, None)]),
    current=trial(8),
    recommended=trial(32, speed=20),
    fastest_batch_size=64,
    curve=[trial(1), trial(70, False, None)],
    price_per_hour_usd=2.0,
    source=Source.PREDICTED,
    caveats=["mind the gap"],
)


def test_the_verdict_names_the_phase_that_decides_where_it_is_not_the_step() -> None:
    def where(limiting: PhaseName | None) -> str:
        return verdict(replace(FOUND, limiting_phase=limiting)).partition("; ")[2]

    assert where(None) == where(PhaseName.STEP) == "65 does not. (Predicted)"
    assert where(PhaseName.GENERATION) == "65 does not in generation. (Predicted)"
    assert where(PhaseName.SAVING) == "65 does not while saving. (Predicted)"


def test_the_speedup_is_a_ratio_of_speeds_and_not_of_batch_sizes() -> None:
    assert conclude(REQUEST, FOUND).speedup == 2.0


def test_savings_follow_from_the_speedup() -> None:
    savings = conclude(REQUEST, FOUND).savings
    assert savings is not None
    assert savings.gpu_hours_per_year == pytest.approx(50 * 10 / 2)
    assert savings.usd_per_year == pytest.approx(500)
    assert (savings.current_usd_per_run, savings.recommended_usd_per_run) == (20, 10)


def test_headroom_is_the_devices_free_memory() -> None:
    result = conclude(REQUEST, FOUND)
    assert result.current_headroom_bytes == 1000 - (8 * 11 + 100)
    assert result.largest_headroom_bytes == 1000 - (64 * 11 + 100)


def test_without_an_allocator_headroom_counts_tensors() -> None:
    bare = replace(trial(8), peak_reserved_bytes=None, device_used_bytes=None)
    assert conclude(REQUEST, replace(FOUND, current=bare)).current_headroom_bytes == 1000 - 80


def test_a_current_batch_that_does_not_fit_has_no_savings() -> None:
    result = conclude(REQUEST, replace(FOUND, current=trial(500, False, None)))
    assert result.speedup is None
    assert result.savings is None
    assert result.current_headroom_bytes is None


def test_a_batch_that_is_kept_saves_nothing() -> None:
    result = conclude(REQUEST, replace(FOUND, recommended=trial(8)))
    assert result.savings is not None
    assert result.savings.usd_per_year == 0
    assert result.speedup == 1


def test_the_certificate_repeats_a_model_given_by_its_config() -> None:
    mine = Workload("mine", config=PRESETS["bert"].config(), optimizer=Optimizer.SGD)
    commands = conclude(replace(REQUEST, workload=mine), FOUND).certificate
    assert commands == [
        "memorymark predict mine --config config.json --gpu a10 --optimizer sgd "
        f"--batch-size {size}"
        for size in (64, 65)
    ]


def test_each_trial_is_listed_once_in_order() -> None:
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


# --- the decision -----------------------------------------------------------------------------

TIMES = "\N{MULTIPLICATION SIGN}"


def option(batch_size: int, ratio: float, low: float) -> Option:
    return Option(batch_size, Speedup(ratio, low, ratio**2 / low))


def found(recommended: int, current: int | None, ratio: float | None, **fields: Any) -> Findings:
    """Where batch 288 fits and 296 does not."""
    return Findings(
        gpu=GpuFacts("A GPU", 2**34, 2**34),
        outcome=fields.pop("outcome", SearchOutcome(288, 296, True, [])),
        current=None if current is None else trial(current, ratio is not None),
        recommended=trial(recommended, speed=10 * (ratio or 1)),
        fastest_batch_size=fields.pop("fastest_batch_size", 288),
        curve=(),
        price_per_hour_usd=1.0,
        source=fields.pop("source", Source.PREDICTED),
        **fields,
    )


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        (found(64, 16, 1.3126), f"Switch to batch 64: 1.31{TIMES} faster."),
        (found(64, 16, 2.9), f"Switch to batch 64: 2.9{TIMES} faster."),
        (found(64, 64, 1.0), "Keep batch 64: it runs within 5% of this GPU's top speed."),
        (found(64, 1024, None), "Switch to batch 64: batch 1,024 runs out of memory."),
        (
            found(64, 280, 0.8, safe_batch_size=264),
            "Switch to batch 64: batch 280 may run out of memory.",
        ),
        (
            found(264, 264, 1.0, bound=Bound.MEMORY, safe_batch_size=264),
            "Keep batch 264: batch 272 does not surely fit.",
        ),
        (
            found(20, 20, 1.0, bound=Bound.GLOBAL_BATCH),
            "Keep batch 20: larger ones do not keep the global batch.",
        ),
        (found(1, 16, None, safe_batch_size=0), "Try batch 1: no batch is certain to fit."),
        (found(1, 3, 0.5, safe_batch_size=0), "Try batch 1: no batch is certain to fit."),
        (found(64, None, None), "Start with batch 64: it runs within 5% of this GPU's top speed."),
        (
            found(256, None, None, bound=Bound.MEMORY),
            "Start with batch 256: it runs within 5% of the fastest that surely fits.",
        ),
        (
            found(288, None, None, bound=Bound.MEMORY),
            "Start with batch 288: batch 296 does not surely fit.",
        ),
        (
            found(20, None, None, bound=Bound.GLOBAL_BATCH),
            "Start with batch 20: larger ones do not keep the global batch.",
        ),
        (found(1, None, None, safe_batch_size=0), "Try batch 1: no batch is certain to fit."),
        *(  # with the digits that its range has everywhere
            (
                found(64, 16, speedup, span=(0.7, 2.0), host_decides=True),
                f"Switch to batch 64: {range_}{TIMES} faster, depending on the CPU.",
            )
            for speedup, range_ in ((3.0, "2.1\N{EN DASH}6.0"), (2.0, "1.40\N{EN DASH}4.0"))
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 1.1, 0.96)),
            f"Keep batch 16: batch 64 may be 1.10{TIMES} faster, which is not sure.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 1.03, 1.0002)),
            "Keep batch 16: larger batches would be at most about 3% faster.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 1.02, 0.99), bound=Bound.MEMORY),
            "Keep batch 16: larger batches that surely fit would be at most about 2% faster.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 0.99, 0.96), bound=Bound.MEMORY),
            "Keep batch 16: larger batches that surely fit would be no faster.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 1.02, 0.99), bound=Bound.GLOBAL_BATCH),
            "Keep batch 16: larger ones of the global batch gain at most about 2%.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 0.99, 0.96)),
            "Keep batch 16: it runs within 5% of this GPU's top speed.",
        ),
        (
            found(16, 16, 1.0, foregone=option(64, 1.04, 0.98), source=Source.MEASURED),
            f"Keep batch 16: batch 64 may be 1.04{TIMES} faster, which is not sure.",
        ),
    ],
)
def test_the_decision_says_what_to_do_in_one_short_sentence(
    findings: Findings, expected: str
) -> None:
    assert decision(findings) == expected
    assert len(expected.split()) <= 15


def test_without_a_current_batch_nothing_is_faster_or_saved() -> None:
    request = replace(REQUEST, current_batch_size=None)
    result = conclude(request, replace(FOUND, current=None))
    assert (result.current_batch_size, result.current_headroom_bytes) == (None, None)
    assert (result.speedup, result.savings) == (None, None)
    assert [one.batch_size for one in result.trials] == [8, 64, 65, 32]
    assert not any("global batch" in caveat for caveat in result.caveats)
    assert "--current-batch-size" not in "".join(result.certificate)


def test_the_verdict_is_the_decision_and_what_fits() -> None:
    kept = "Keep batch 64: it runs within 5% of this GPU's top speed."
    assert verdict(found(64, 64, 1.0)) == f"{kept} Up to 288 fits; 296 does not. (Predicted)"
    at_the_end = found(64, 64, 1.0, outcome=SearchOutcome(65_536, 65_544, False, []))
    assert verdict(at_the_end) == f"{kept} Up to 65,536 fits; nothing larger was tried. (Predicted)"
    assert verdict(found(64, 64, 1.0, source=Source.MEASURED)).endswith("does not. (Measured)")


def test_between_gain_and_none_two_runs_would_tell() -> None:
    probable = replace(FOUND, recommended=trial(8), foregone=option(32, 1.1, 0.96))
    runs = "memorymark measure bert --batch-size 8 and memorymark measure bert --batch-size 32"
    (caveat,) = [one for one in conclude(REQUEST, probable).caveats if "would tell" in one]
    assert caveat == f"Two short runs on the GPU would tell: {runs}"
    small = replace(probable, foregone=option(32, 1.03, 1.0002))
    assert not any("would tell" in one for one in conclude(REQUEST, small).caveats)


def test_what_is_kept_saves_nothing_and_what_is_changed_does() -> None:
    """Also with moves, where the speedup of what is not worth a change is shown all the same."""
    for ratio, saves in ((1.049, False), (1.2, True)):
        moved = replace(
            FOUND, recommended=trial(8, speed=10 * ratio), moves=["bf16"], span=within(0.01)
        )
        result = conclude(REQUEST, moved)
        assert result.savings is not None
        assert result.decision.startswith("Switch" if saves else "Keep")
        assert (result.savings.usd_per_year > 0) is saves
        assert result.speedup == pytest.approx(ratio)
