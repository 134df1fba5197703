"""The environment of a measurement: read, put into the result, and shown."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
import transformers

from engine.answer.certificate import measured_on_rows
from engine.interface.result import MeasuredOn
from engine.measurement import environment
from engine.measurement.environment import driver_facts, measured_on
from engine.measurement.protocol import TrialOrder
from engine.tests.shared import small_workload

ON_CPU = MeasuredOn("cpu", "2.13.0", "5.23.0", cpu_threads=4)
ON_A10 = MeasuredOn(
    device="NVIDIA A10",
    torch="2.13.0",
    transformers="5.23.0",
    cpu_threads=4,
    compute_capability="8.6",
    driver="570.86.15",
    cuda="12.8",
    cudnn="91002",
    allocator="expandable_segments:True",
    matmul_precision="ieee",
    convolution_precision="tf32",
    cudnn_benchmark=False,
    deterministic=False,
    power_limit_watts=150.0,
    clock_mhz=885,
    largest_clock_mhz=1695,
)


def shown(found: MeasuredOn) -> str:
    return " ".join(f"{label} {said}" for label, said in measured_on_rows(found))


@pytest.mark.usefixtures("small_models")
def test_on_the_cpu_it_has_libraries_and_threads() -> None:
    found = measured_on(TrialOrder(small_workload("bert"), 2))
    if found.device == "cpu":
        assert found == MeasuredOn(
            "cpu", torch.__version__, transformers.__version__, torch.get_num_threads()
        )
    assert found.torch == torch.__version__


class Driver:
    """NVML of a GPU that does not report its power limit."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def handle(self, uuid: str) -> str:
        self.asked.append(uuid)
        return uuid

    def refuse(self, *_: Any) -> float:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    for name, stand_in in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.86.15",
        "nvmlDeviceGetHandleByUUID": driver.handle,
        "nvmlDeviceGetEnforcedPowerLimit": driver.refuse,
        "nvmlDeviceGetClockInfo": lambda gpu, clock: 885,
        "nvmlDeviceGetMaxClockInfo": lambda gpu, clock: 1695,
    }.items():
        monkeypatch.setattr(pynvml, name, stand_in)
    return driver


def test_the_driver_is_queried_for_this_gpu_and_missing_values_are_left_out(
    driver: Driver,
) -> None:
    told = driver_facts("123e4567")
    assert told == {"driver": "570.86.15", "clock_mhz": 885, "largest_clock_mhz": 1695}
    assert driver.asked == ["GPU-123e4567"]


def test_a_partition_of_a_gpu_only_has_a_driver(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", driver.refuse)
    assert driver_facts("MIG") == {"driver": "570.86.15"}


def test_without_a_driver_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", Driver().refuse)
    assert driver_facts("123e4567") == {}


@pytest.mark.usefixtures("small_models", "driver")
def test_on_cuda_it_has_settings_that_affect_speed_and_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a10 = SimpleNamespace(name="NVIDIA A10", major=8, minor=6, uuid="123e4567")
    monkeypatch.setattr(environment, "device_kind", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: a10)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, _: model)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    found = measured_on(TrialOrder(small_workload("bert"), 2))
    assert (found.device, found.compute_capability) == ("NVIDIA A10", "8.6")
    assert found.allocator == "expandable_segments:True"
    assert found.convolution_precision == "tf32"
    assert found.cudnn_benchmark is False
    assert found.driver == "570.86.15"
    assert found.power_limit_watts is None


def test_every_part_of_it_is_shown() -> None:
    text = shown(ON_A10)
    for part in (
        "NVIDIA A10, compute capability 8.6",
        "torch 2.13.0, transformers 5.23.0, CUDA 12.8, driver 570.86.15",
        "matrix ieee, convolution tf32",
        "91002, benchmark off, deterministic algorithms not required",
        "expandable_segments:True",
        "limit 150 W, 885 MHz before a step, at most 1,695 MHz",
    ):
        assert part in text
    assert "PyTorch's default" in shown(replace(ON_A10, allocator=""))


def test_values_the_cpu_lacks_are_not_shown() -> None:
    text = shown(ON_CPU)
    assert "Device cpu" in text
    for absent in ("CUDA", "cuDNN", "Allocator", "Power", "fp32"):
        assert absent not in text


def test_without_nvml_the_driver_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "pynvml", None)
    assert driver_facts("123e4567") == {}
