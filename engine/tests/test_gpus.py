"""The GPU catalogue is complete, sourced and plausible, and accepts names as people type them."""

import re

import pytest

from engine.errors import InvalidInput
from engine.gpus import GIB, GPUS, Gpu, canonical_name, catalogue_name, read_catalogue

ADVERTISED_GIB = {
    "a10": 24,
    "a100-40gb": 40,
    "a100-80gb": 80,
    "h100": 80,
    "h200": 141,
    "l4": 24,
    "l40s": 48,
    "t4": 16,
    "v100-16gb": 16,
    "v100-32gb": 32,
    "rtx-3090": 24,
    "rtx-4090": 24,
    "rtx-5090": 32,
    "a6000": 48,
}
CONSUMER = {"rtx-3090", "rtx-4090", "rtx-5090"}
BEFORE_AMPERE = {"t4", "v100-16gb", "v100-32gb"}
ONE_TABLE = """
[toy]
display_name = "Toy"
total_bytes = 1_000
context_bytes = 100
compute_capability = 8.0
fp32_flops = 1e12
fp16_flops = 2e12
memory_bytes_per_second = 1e9
multiprocessors = 10
power_watts = 100
price_per_hour_usd = 0.5
[toy.sources]
total_bytes = "s"
context_bytes = "s"
compute_capability = "s"
fp32_flops = "s"
fp16_flops = "s"
memory_bytes_per_second = "s"
multiprocessors = "s"
power_watts = "s"
price_per_hour_usd = "s"
"""

every_gpu = pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS.keys())


def test_the_catalogue_has_exactly_the_promised_gpus() -> None:
    assert list(GPUS) == list(ADVERTISED_GIB)


def test_display_names_are_unique() -> None:
    assert len({gpu.display_name for gpu in GPUS.values()}) == len(GPUS)


@every_gpu
def test_total_memory_is_as_cuda_reports_it_and_not_as_advertised(gpu: Gpu) -> None:
    assert 0.8 < gpu.total_bytes / (ADVERTISED_GIB[gpu.name] * GIB) < 1


@every_gpu
def test_the_context_is_a_plausible_share_of_memory(gpu: Gpu) -> None:
    assert 0.1 * GIB < gpu.context_bytes < 0.8 * GIB
    assert gpu.usable_bytes == gpu.total_bytes - gpu.context_bytes


@every_gpu
def test_rates_have_the_order_of_the_hardware(gpu: Gpu) -> None:
    assert gpu.fp32_flops < gpu.fp16_flops
    assert 5e12 < gpu.fp32_flops < 2e14
    assert 3e11 <= gpu.memory_bytes_per_second < 1e13
    assert 40 <= gpu.multiprocessors < 200
    assert 70 <= gpu.power_watts <= 1000
    if gpu.name in BEFORE_AMPERE:
        assert gpu.compute_capability < 8
        assert (gpu.tf32_flops, gpu.bf16_flops) == (None, None)
        return
    assert gpu.compute_capability >= 8
    assert gpu.tf32_flops is not None
    assert gpu.bf16_flops == gpu.fp16_flops
    assert gpu.fp32_flops <= gpu.tf32_flops < gpu.fp16_flops
    assert gpu.tf32_flops == pytest.approx(gpu.fp16_flops / 2, rel=0.02)
    if gpu.name in CONSUMER:
        # These halve the tensor rate with fp32 accumulation, down to twice the plain one.
        assert gpu.fp16_flops == pytest.approx(2 * gpu.fp32_flops, rel=0.01)


@every_gpu
def test_prices_are_per_hour_and_marked_as_assumed(gpu: Gpu) -> None:
    assert 0.1 < gpu.price_per_hour_usd < 15
    assert gpu.sources["price_per_hour_usd"].startswith("assumed")


@every_gpu
def test_a_spot_price_is_dated_marked_as_assumed_and_below_on_demand(gpu: Gpu) -> None:
    price = gpu.spot_price_per_hour_usd
    if price is None:
        assert (gpu.name, gpu.spot_price_date) in {("t4", ""), ("v100-32gb", "")}
        return
    assert 0.1 < price < gpu.price_per_hour_usd
    assert gpu.sources["spot_price_per_hour_usd"].startswith("assumed")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", gpu.spot_price_date)


def test_the_date_of_a_price_is_that_of_its_source() -> None:
    assert GPUS["a10"].price_date == "2026-05-07"
    assert GPUS["a6000"].price_date == "2026-11"  # no day is known
    assert GPUS["v100-16gb"].price_date == ""  # no dated source was found


@every_gpu
def test_every_number_has_a_dated_source_or_the_basis_of_its_assumption(gpu: Gpu) -> None:
    for field, source in gpu.sources.items():
        dated = re.search(r"\b20\d\d(-\d\d){0,2}\b", source)
        assert dated or "assumed" in source, f"{gpu.name}.{field}: {source}"


def test_the_a10_fits_the_published_measurements() -> None:
    # "A10 22.1 GiB": BERT at batch 288 allocated 21.33 GiB and ran; 296 went out of memory.
    a10 = GPUS["a10"]
    assert round(a10.total_bytes / GIB, 1) == 22.1
    assert 21.33 < a10.usable_bytes / GIB < 21.33 / 288 * 296


def test_the_h200_is_close_to_nvidia_smis_numbers() -> None:
    assert 0.99 < GPUS["h200"].total_bytes / (143_771 * 2**20) < 1


def test_a_table_may_leave_out_optional_rates() -> None:
    toy = read_catalogue(ONE_TABLE)["toy"]
    assert (toy.name, toy.usable_bytes, toy.tf32_flops) == ("toy", 900, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("total_bytes = 1_000", "total_byte = 1_000", "unknown total_byte"),
        ("fp32_flops = 1e12\n", "", "lacks fp32_flops"),
        ('fp32_flops = "s"\n', "", "differ in fp32_flops"),
        ("[toy.sources]", '[toy.sources]\nrumour = "s"', "differ in rumour"),
    ],
)
def test_an_inexact_table_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"GPU toy: .*{message}"):
        read_catalogue(ONE_TABLE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("a10", "a10"),
        ("A100-80GB", "a100-80gb"),
        ("a100_40gb", "a100-40gb"),
        ("RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("RTX A6000", "a6000"),
        ("Tesla T4", "t4"),
        (" h100 ", "h100"),
        ("Local", "local"),
    ],
)
def test_a_gpu_is_found_by_the_names_people_type(typed: str, name: str) -> None:
    assert canonical_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "candidates"),
    [("a100", "a100-40gb, a100-80gb"), ("V100", "v100-16gb, v100-32gb")],
)
def test_an_inexact_name_lists_the_candidates(typed: str, candidates: str) -> None:
    with pytest.raises(InvalidInput, match=f"choose one of {candidates}$"):
        canonical_name(typed)


@pytest.mark.parametrize("typed", ["", "gtx-9999", "nvidia", "a" * 500])
def test_an_unknown_name_lists_the_catalogue(typed: str) -> None:
    with pytest.raises(InvalidInput, match=r"unknown gpu .*a10, .*local, any$") as caught:
        canonical_name(typed)
    assert len(caught.value.fields["gpu"]) < 250


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA A10", "a10"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-PCIE-40GB", None),
        ("", None),
    ],
)
def test_a_gpu_is_found_by_its_drivers_name(device: str, name: str | None) -> None:
    assert catalogue_name(device) == name
