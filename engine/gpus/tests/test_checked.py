"""Findings of a self-check, in a sentence and in predictions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InvalidInput
from engine.gpus import GPUS, checked, known
from engine.gpus.checked import (
    MEMORY,
    STEP,
    Comparison,
    Device,
    FirstUse,
    FixedCost,
    Identity,
    Problem,
    Rates,
    SelfCheck,
    measured_rows,
    read_self_check,
)
from engine.gpus.driver import LocalGpu
from engine.gpus.fixed_costs import CUDNN_BYTES, fixed_costs
from engine.gpus.known import in_use, known_gpus, on_checked, using
from engine.prediction.caveats import checked_caveats
from engine.versions import software

MIB = 2**20
H100 = LocalGpu("NVIDIA H100 80GB HBM3", "GPU-1", 85_520_809_984, "580.159.04")


def _cost(after: FirstUse, used: int, reserved: int, kept: int) -> FixedCost:
    return FixedCost(after, used, reserved, kept, kept, 4)


COSTS = (
    _cost(FirstUse.CONTEXT, 650_969_088, 2_097_152, 0),
    _cost(FirstUse.PRODUCT, 753_729_536, 35_651_584, 33_554_432),
    _cost(FirstUse.BACKWARD, 854_392_832, 69_206_016, 67_108_864),
    _cost(FirstUse.HALF, 854_392_832, 69_206_016, 67_108_864),
    _cost(FirstUse.CONVOLUTION, 911_015_936, 106_954_752, 67_108_864),
    _cost(FirstUse.ATTENTION, 911_015_936, 106_954_752, 67_108_864),
)
"""As measured on an H100 with torch 2.11.0 and CUDA 13.0 on 2026-11-26."""


def compared(counted: str, measured: float, predicted: float, workload: str = "w") -> Comparison:
    return Comparison(workload, {"model": "bert"}, 8, counted, measured, predicted)


def made_check(**fields: object) -> SelfCheck:
    """The self-check of an H100 with the software that is installed here."""
    given: dict[str, object] = {
        "when": "2026-11-26T10:00:00+00:00",
        "identity": Identity.of(H100, software.installed()),
        "seconds": 61.0,
        "device": Device("cuda", H100.name, 85_017_493_504, 9.0, "13.0"),
        "fixed_costs": COSTS,
        "launch_seconds": 9e-6,
        "step_launch_seconds": 45e-6,
    }
    return SelfCheck(**given | fields)  # type: ignore[arg-type]  # each test sets what it needs


def test_context_and_libraries_are_told_apart_by_the_work_that_loads_them() -> None:
    check = made_check()
    assert check.context_bytes == 785_186_816
    assert check.cudnn_bytes == 18 * MIB
    assert check.cublas_workspace_bytes == 32 * MIB


def test_a_prediction_takes_the_measured_values_and_says_so() -> None:
    gpu = on_checked(GPUS["h100"], made_check())
    costs = fixed_costs(gpu)
    assert (gpu.total_bytes, gpu.context_bytes) == (85_017_493_504, 785_186_816)
    assert (costs.cudnn_bytes, costs.cublas_workspace_bytes) == (18 * MIB, 32 * MIB)
    assert costs.unsure_bytes == (0, 0)
    assert checked_caveats(gpu) == [
        "GPU memory (79.18 GiB), the CUDA context (748.8 MiB) and the time to launch an operation "
        "(45 to 99 µs) were measured by a self-check of this GPU on 2026-11-26."
    ]
    assert checked_caveats(GPUS["h100"]) == []


def test_steps_of_real_models_take_longer_to_launch_than_that_of_the_check() -> None:
    """It times a narrow model, and hosts bound those of an H200 1.3 to 2.1 times as long."""
    gpu = on_checked(GPUS["h100"], made_check())
    assert gpu.launch_seconds == pytest.approx(1.6 * 45e-6)
    assert gpu.launch_range == pytest.approx((45e-6, 2.2 * 45e-6))
    with using([made_check()]):
        known = known_gpus(launch_microseconds=50)["h100"]
    assert (known.launch_seconds, known.launch_range) == (50e-6, None)


def test_what_was_not_measured_stays_the_catalogues() -> None:
    check = made_check(fixed_costs=(), step_launch_seconds=None)
    catalogue = GPUS["a10"]
    gpu = on_checked(catalogue, check)
    assert gpu.context_bytes == catalogue.context_bytes
    assert gpu.sources["context_bytes"] == catalogue.sources["context_bytes"]
    assert fixed_costs(gpu).cudnn_bytes == CUDNN_BYTES
    assert fixed_costs(gpu).unsure_bytes == fixed_costs(catalogue).unsure_bytes
    assert "context" not in checked_caveats(gpu)[0]


def test_the_labs_checks_count_for_their_gpu_while_they_are_used() -> None:
    assert in_use() == {}
    with using([made_check()]):
        gpus = known_gpus()
        assert gpus["h100"].checked is not None
        assert gpus["a100-80gb"] == GPUS["a100-80gb"]
    assert known_gpus() == GPUS


def test_a_check_with_another_torch_is_not_used() -> None:
    check = made_check()
    other = replace(check, identity=replace(check.identity, torch="1.0"))
    with using([other]):
        assert in_use() == {}


def test_the_sentence_names_the_worst_errors() -> None:
    check = made_check(
        comparisons=(
            compared("peak_allocated_bytes", 1000.0, 1000.0),
            compared("peak_reserved_bytes", 1000.0, 997.2),
            compared(STEP, 1.0, 1.055),
        )
    )
    assert check.sentence == "Predictions on this node: memory within 0.3%, time within 6%."
    assert made_check().sentence.startswith("No prediction could be compared")


def test_a_node_without_a_gpu_says_so() -> None:
    device = Device("cpu", "CPU (x86_64)", 2**34, 0.0, "")
    check = made_check(device=device, comparisons=(compared("live_bytes", 5.0, 5.0),))
    assert check.sentence == (
        "Predictions on this node: memory within 0% (on its CPU, since it has no CUDA GPU)."
    )
    assert check.gpu_name == ""


NUMBERS = st.floats(1e-6, 1e12)


@given(st.lists(st.tuples(st.sampled_from([*MEMORY, STEP]), NUMBERS, NUMBERS)))
def test_every_error_is_within_what_the_sentence_rests_on(
    numbers: list[tuple[str, float, float]],
) -> None:
    check = made_check(comparisons=tuple(compared(*one) for one in numbers))
    for counted, measured, predicted in numbers:
        bound = check.time_error if counted == STEP else check.memory_error
        assert bound is not None
        assert abs(predicted / measured - 1) <= bound


@given(st.floats(0, 10))
def test_a_percentage_in_the_sentence_is_never_less_than_the_error(error: float) -> None:
    told = checked._percent(error)
    assert float(told.removesuffix("%")) / 100 >= error - 1e-9
    assert not math.isnan(float(told.removesuffix("%")))


def test_a_check_is_read_back_as_it_was_written() -> None:
    check = made_check(
        rates=Rates(2.5e12, {"bf16": 7e14}),
        comparisons=(compared(STEP, 1.0, 1.1),),
        problems=(Problem("a", "b", "c"),),
    )
    assert read_self_check(json.dumps(check.to_dict())) == check
    with pytest.raises(InvalidInput):
        read_self_check({"when": "today"})


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "selfcheck.json"
    monkeypatch.setenv(known.FILE_VARIABLE, str(path))
    monkeypatch.setattr(checked, "local_gpu", lambda: H100)
    return path


def test_the_own_check_holds_until_gpu_driver_or_versions_change(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known.own_check() is None
    check = made_check()
    assert known.write_own(check) == own_file
    assert known.own_check() == check
    assert known_gpus()["h100"].context_bytes == 785_186_816

    newer = replace(H100, driver="600.1")
    monkeypatch.setattr(checked, "local_gpu", lambda: newer)
    assert known.own_check() is None


def test_an_own_check_of_another_version_is_ignored(own_file: Path) -> None:
    own_file.parent.mkdir()
    own_file.write_text('{"schema": 1}')
    assert known.own_check() is None


def test_measured_values_have_their_units() -> None:
    check = made_check(rates=Rates(2.5e12, {"bf16": 7e14}))
    assert dict(measured_rows(check)) == {
        "CUDA context and cuBLAS": "748.8 MiB",
        "cuDNN, beside it": "18.0 MiB",
        "cuBLAS workspace of a thread": "32.0 MiB",
        "Launch of one tiny operation": "9.0 µs",
        "Launch of an operation of a training step": "45.0 µs",
        "Memory bandwidth": "2,500 GB/s",
        "Matrix products in bf16": "700.0 TFLOP/s",
    }
