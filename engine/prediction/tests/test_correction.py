"""Step times learn from steps that were measured on the same kind of GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.process import CALIBRATION_VARIABLE
from engine.interface.workload import Workload
from engine.prediction.timing.correction import NO_EXPERIENCE, Experience
from engine.prediction.timing.intervals import (
    Counted,
    RelativeRange,
    Residual,
    append_residuals,
)
from engine.prediction.timing.speed_model import step_predictor

BERT = Workload("bert")
SPAN = RelativeRange(0.7, 1.4)


def seen(ratio: float, batch_size: int = 16, gpu: str = "a10", **workload: object) -> Residual:
    """A step that took so many times its prediction of 10 ms, and 1 ms more for each sample."""
    predicted = 0.01 + 0.001 * batch_size
    return Residual(
        gpu=gpu,
        workload={"model": "bert"} | workload,
        batch_size=batch_size,
        counted=Counted.STEP_SECONDS,
        measured=ratio * predicted,
        predicted=predicted,
        source="a test",
        predictor=step_predictor(),
    )


def factor(*residuals: Residual, batch_size: int = 16, gpu: str = "a10") -> float:
    return Experience(residuals).of(BERT, gpu).factor(batch_size)


def test_nothing_measured_corrects_nothing() -> None:
    unlearned = NO_EXPERIENCE.of(BERT, "a10")
    assert unlearned.factor(16) == 1
    assert unlearned.caveats(16) == []
    narrowed = unlearned.narrowed(SPAN)
    assert (narrowed.low, narrowed.high) == pytest.approx((SPAN.low, SPAN.high))


def test_its_own_measured_steps_count_most() -> None:
    one, three = factor(seen(1.3)), factor(seen(1.3), seen(1.3), seen(1.3))
    assert 1.2 < one < three < 1.3


def test_other_workloads_on_the_gpu_count_less() -> None:
    others = [seen(1.3, model=model) for model in ("gpt2", "resnet", "t5-base")]
    assert 1 < factor(others[0]) < factor(*others) < factor(seen(1.3)) < 1.3


def test_another_gpu_or_predictor_says_nothing() -> None:
    assert factor(seen(1.3, gpu="t4"), replace(seen(1.3), predictor="of last year")) == 1


def test_two_batch_sizes_correct_the_fixed_and_the_growing_part_apart() -> None:
    def step(batch_size: int) -> Residual:  # its fixed part takes three times as long
        measured = 0.03 + 0.001 * batch_size
        return replace(seen(1, batch_size), measured=measured)

    known = [step(size) for size in (2, 64) for _ in range(20)]
    for batch_size in (1, 16, 200):
        wanted = step(batch_size).ratio
        assert factor(*known, batch_size=batch_size) == pytest.approx(wanted, rel=0.02)


def test_accumulation_leaves_it_the_same_workload_and_software_does_not() -> None:
    assert factor(seen(1.3, gradient_accumulation=4)) == factor(seen(1.3))
    assert factor(seen(1.3, software="torch=2.6.0")) < factor(seen(1.3))


def test_what_was_measured_narrows_the_range() -> None:
    def width(*residuals: Residual) -> float:
        span = Experience(residuals).of(BERT, "a10").narrowed(SPAN)
        return span.high / span.low

    other = seen(1.1, model="gpt2")
    assert width(seen(1.1)) < width(other) < width()
    assert width(seen(1.1), other) < width(seen(1.1))


def test_a_sentence_says_how_far_and_by_what() -> None:
    learned = Experience(
        [seen(1.3, 2), seen(1.3, 1024), seen(1.2, model="gpt2"), seen(1.2, model="resnet")]
    )
    (said,) = learned.of(BERT, "a10").caveats(16)
    assert said.startswith("Step times are 27% longer at batch 16 than the operations alone give")
    assert "this workload at batch 2, 1,024 and 2 other workloads" in said
    (said,) = Experience([seen(0.8, model="gpt2")]).of(BERT, "a10").caveats(16)
    assert "shorter" in said
    assert said.endswith("with 1 other workload.")


ratios = st.floats(0.2, 5)


@given(st.lists(st.builds(seen, ratios, st.integers(1, 512)), min_size=1, max_size=8))
def test_a_correction_lies_between_none_and_what_was_measured(residuals: list[Residual]) -> None:
    found = Experience(residuals).of(BERT, "a10")
    for residual in residuals:
        assert 0 < found.factor(residual.batch_size) < math.inf
    if len({residual.batch_size for residual in residuals}) == 1:
        measured = [residual.ratio for residual in residuals]
        corrected = found.factor(residuals[0].batch_size)
        assert min(1, *measured) - 1e-9 <= corrected <= max(1, *measured) + 1e-9


@given(ratios, ratios)
def test_the_order_of_measuring_does_not_matter(one: float, other: float) -> None:
    first, second = seen(one, 4), seen(other, 64)
    assert factor(first, second) == pytest.approx(factor(second, first))


def test_a_workload_of_another_version_is_one_of_the_others() -> None:
    found = Experience([seen(1.2, no_longer_a_field=True)]).of(BERT, "a10")
    assert (len(found.own), found.others) == (0, 1)


def test_your_own_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.toml"
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))
    assert Experience.here().residuals == []
    append_residuals(path, [seen(1.3)])
    assert Experience.here([seen(1.1)]).residuals == [seen(1.3), seen(1.1)]
    assert Experience.here().of(BERT, "a10").factor(16) > 1.2
