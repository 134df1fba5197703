"""A GPU known by its data sheet is checked for slips of units, and predicted like others."""

import json
from dataclasses import asdict, replace

import pytest

from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.gpus import GPUS, Gpu, Vendor, with_added
from engine.gpus.data_sheet import ADDED_FAMILY, MIB, DataSheet, gpu_of
from engine.interface.request import AnalysisRequest
from engine.prediction.one_batch import predict_batch
from engine.run import Order, _order

L20: dict[str, object] = {
    "name": "NVIDIA L20",
    "memory_gb": "48",
    "bandwidth_gb_per_second": "864",
    "fp32_tflops": "59.8",
    "tf32_tflops": "59.8",
    "fp16_tflops": "119.5",
    "bf16_tflops": "119.5",
    "compute_capability": "8.9",
    "multiprocessors": "92",
    "power_watts": "275",
    "price_per_hour_usd": "",
}


def added(**changed: object) -> Gpu:
    return gpu_of(DataSheet.parse(L20 | changed), "added by root on 2026-11-26")


def sheet_of(gpu: Gpu, factor: float = 1.0) -> dict[str, object]:
    """Data sheet of a catalogue GPU, its tensor rates times a factor."""
    tera = 1e12 / factor
    return {
        "name": f"{gpu.display_name} X",
        "vendor": gpu.vendor,
        "memory_gb": gpu.total_bytes / GIB / 0.95,
        "bandwidth_gb_per_second": gpu.memory_bytes_per_second / 1e9,
        "fp32_tflops": gpu.fp32_flops / 1e12,
        "tf32_tflops": gpu.tf32_flops and gpu.tf32_flops / tera,
        "fp16_tflops": gpu.fp16_flops / tera,
        "bf16_tflops": gpu.bf16_flops and gpu.bf16_flops / tera,
        "compute_capability": gpu.compute_capability,
        "multiprocessors": gpu.multiprocessors,
        "power_watts": gpu.power_watts,
    }


def test_its_values_are_assumed_and_its_unknown_ones_derived() -> None:
    gpu = added()
    assert (gpu.name, gpu.display_name, gpu.family) == ("l20", "NVIDIA L20", ADDED_FAMILY)
    assert gpu.total_bytes == round(0.97 * 48 * GIB)
    assert gpu.fp16_flops == gpu.bf16_flops == 119.5e12
    assert gpu.price_per_hour_usd is None
    assert all(source.startswith("assumed") for source in gpu.sources.values())
    assert "2026-11-26" in gpu.sources["fp32_flops"]
    assert gpu.sources["context_bytes"].startswith("assumed from rtx-5000-ada")
    assert 0.1 * GIB < gpu.context_bytes < GIB


def test_the_memory_that_a_driver_reports_is_taken_as_it_is() -> None:
    assert added(reported_mib="46068").total_bytes == 46068 * MIB


def test_an_amd_gpu_needs_no_compute_capability() -> None:
    given = sheet_of(GPUS["mi300x"]) | {"name": "AMD Instinct MI308X", "compute_capability": ""}
    gpu = gpu_of(DataSheet.parse(given), "added by root")
    assert (gpu.name, gpu.vendor, gpu.compute_capability) == ("mi308x", Vendor.AMD, 8.0)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS.keys())
def test_what_the_catalogue_has_passes_as_a_data_sheet(gpu: Gpu) -> None:
    DataSheet.parse(sheet_of(gpu))


@pytest.mark.parametrize("name", ["a100-80gb", "h100", "b200", "l4", "l40s", "a6000", "rtx-4090"])
def test_rates_with_sparsity_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        DataSheet.parse(sheet_of(GPUS[name], factor=2))
    assert "the rate with sparsity" in refused.value.fields["fp16_tflops"]


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"memory_gb": "49152"}, "memory_gb", "from 1 to 2,048 GB"),
        ({"bandwidth_gb_per_second": "0.864"}, "bandwidth_gb_per_second", "GB/s"),
        ({"fp32_tflops": "59800"}, "fp32_tflops", "TFLOP/s"),
        ({"fp32_tflops": "119.5"}, "fp32_tflops", "is it the rate of tensor cores"),
        ({"bf16_tflops": "239"}, "bf16_tflops", "the rate with sparsity"),
        ({"tf32_tflops": "119.5"}, "tf32_tflops", "the rate with sparsity"),
        ({"reported_mib": "48000", "memory_gb": "24"}, "reported_mib", "another unit"),
        ({"reported_mib": "24000"}, "reported_mib", "another unit"),
        ({"compute_capability": "8.8"}, "compute_capability", "choose one of 6.0, "),
        ({"name": "NVIDIA A10"}, "name", "has it already, as a10"),
        ({"name": "NVIDIA H100 80GB HBM3"}, "name", "has it already, as h100"),
        ({"name": "NVIDIA"}, "name", "with letters and digits"),
        ({"name": "any"}, "name", "with letters and digits"),
        ({"power_watts": ""}, "power_watts", "it is missing"),
        ({"price_per_hour_usd": "-1"}, "price_per_hour_usd", "from 0 to 10,000 USD"),
        ({"vendor": "Intel"}, "vendor", "choose one of NVIDIA, AMD"),
        ({"teraflops": "1"}, "teraflops", "unknown field"),
    ],
)
def test_a_slip_is_refused_at_its_field(
    changed: dict[str, object], field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        DataSheet.parse(L20 | changed)
    assert message in refused.value.fields[field]


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_it_is_predicted_like_any_other() -> None:
    with with_added([added()]):
        request = AnalysisRequest.parse(
            {"model": "bert", "gpu": "NVIDIA L20", "sequence_length": 16}
        )
        made = predict_batch(request, lambda _: None)
    assert made.gpu.name == "NVIDIA L20"
    assert made.trial.fits
    assert made.trial.step_seconds


def test_an_engine_is_told_of_it_as_json() -> None:
    gpus = [added(), replace(GPUS["mi300x"], name="other")]
    line = json.dumps({"gpus": [asdict(gpu) for gpu in gpus]})
    assert _order(line) == Order(gpus=gpus)
