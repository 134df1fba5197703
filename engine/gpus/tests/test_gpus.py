"""The GPU catalogue is complete, sourced and plausible, and accepts names as people type them."""

import re
from dataclasses import replace

import pytest

from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.gpus import (
    BUILT_IN,
    GPUS,
    Gpu,
    Vendor,
    by_family,
    canonical_name,
    catalogue_name,
    read_catalogue,
    with_added,
    with_prices,
)
from engine.gpus.catalogue import AddedGpus

ADVERTISED_GIB = {
    "Data centre": {
        "a10": 24, "a10g": 24, "a100-40gb": 40, "a100-40gb-pcie": 40, "a100-80gb": 80,
        "a100-80gb-pcie": 80, "a30": 24, "a40": 48, "h100": 80, "h100-nvl": 94, "h100-pcie": 80,
        "h200": 141, "h20": 96,
        "gh200": 96, "b200": 180, "b300": 288, "gb200": 186, "l4": 24, "l40": 48, "l40s": 48,
        "p100": 16, "t4": 16, "v100-16gb": 16, "v100-32gb": 32,
    },
    "GeForce": {
        "rtx-2080ti": 11, "titan-rtx": 24, "rtx-3060": 12, "rtx-3060-ti": 8, "rtx-3070": 8,
        "rtx-3070-ti": 8, "rtx-3080": 10, "rtx-3080-12gb": 12, "rtx-3080-ti": 12, "rtx-3090": 24,
        "rtx-3090-ti": 24, "rtx-4060": 8, "rtx-4060-ti-8gb": 8, "rtx-4060-ti-16gb": 16,
        "rtx-4070": 12, "rtx-4070-super": 12, "rtx-4070-ti": 12, "rtx-4070-ti-super": 16,
        "rtx-4080": 16, "rtx-4080-super": 16, "rtx-4090": 24, "rtx-5060-ti-8gb": 8,
        "rtx-5060-ti-16gb": 16, "rtx-5070": 12, "rtx-5070-ti": 16, "rtx-5080": 16, "rtx-5090": 32,
    },
    "Workstation": {
        "a2000-12gb": 12, "a4000": 16, "a4500": 20, "a5000": 24, "a6000": 48, "rtx-4000-ada": 20,
        "rtx-5000-ada": 32, "rtx-6000-ada": 48, "rtx-pro-6000": 96, "rtx-pro-6000-server": 96,
    },
    "AMD Instinct": {"mi250x": 64, "mi300x": 192, "mi325x": 256, "mi355x": 288},
}  # fmt: skip
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


def test_the_catalogue_has_exactly_the_promised_gpus_by_family() -> None:
    found = {
        family: [gpu.name for gpu in gpus] for family, gpus in by_family(GPUS.values()).items()
    }
    assert found == {family: list(gpus) for family, gpus in ADVERTISED_GIB.items()}


def test_display_names_are_unique() -> None:
    assert len({gpu.display_name for gpu in GPUS.values()}) == len(GPUS)


@every_gpu
def test_total_memory_is_as_cuda_reports_it_and_not_as_advertised(gpu: Gpu) -> None:
    assert 0.9 < gpu.total_bytes / (ADVERTISED_GIB[gpu.family][gpu.name] * GIB) < 1


@every_gpu
def test_the_context_is_a_plausible_share_of_memory(gpu: Gpu) -> None:
    assert 0.1 * GIB < gpu.context_bytes <= GIB
    assert gpu.usable_bytes == gpu.total_bytes - gpu.context_bytes


@every_gpu
def test_rates_have_the_order_of_the_hardware(gpu: Gpu) -> None:
    assert gpu.fp32_flops < gpu.fp16_flops
    assert 5e12 < gpu.fp32_flops < 2e14
    assert 2.5e11 <= gpu.memory_bytes_per_second < 1e13
    assert 24 <= gpu.multiprocessors < 310
    assert 70 <= gpu.power_watts <= 1400
    if gpu.vendor is Vendor.AMD:
        assert gpu.tf32_flops is None
        assert gpu.bf16_flops == gpu.fp16_flops
        return
    if gpu.compute_capability < 8:
        assert (gpu.tf32_flops, gpu.bf16_flops) == (None, None)
        return
    assert gpu.tf32_flops is not None
    assert gpu.bf16_flops == gpu.fp16_flops
    assert gpu.fp32_flops <= gpu.tf32_flops < gpu.fp16_flops
    assert gpu.tf32_flops == pytest.approx(gpu.fp16_flops / 2, rel=0.03)
    if gpu.family == "GeForce":
        # These halve the tensor rate with fp32 accumulation, down to twice the plain one.
        assert gpu.fp16_flops == pytest.approx(2 * gpu.fp32_flops, rel=0.01)


@every_gpu
def test_a_price_is_per_hour_and_marked_as_assumed(gpu: Gpu) -> None:
    if gpu.price_per_hour_usd is not None:
        assert 0.05 < gpu.price_per_hour_usd < 15
        assert gpu.sources["price_per_hour_usd"].startswith("assumed")


def test_few_gpus_have_no_price() -> None:
    without = {gpu.name for gpu in GPUS.values() if gpu.price_per_hour_usd is None}
    assert without == {
        "a30", "gb200", "h20", "rtx-2080ti", "rtx-3060-ti", "rtx-3070-ti", "rtx-3080-12gb",
        "rtx-4060-ti-8gb", "rtx-5060-ti-8gb", "mi250x", "mi355x",
    }  # fmt: skip


@every_gpu
def test_a_spot_price_is_dated_marked_as_assumed_and_below_on_demand(gpu: Gpu) -> None:
    price = gpu.spot_price_per_hour_usd
    if price is None:
        assert gpu.spot_price_date == ""
        return
    assert gpu.price_per_hour_usd is not None
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
        assert " " in source  # and not the name of a common source that the file lacks


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


def test_a_source_may_stand_for_several_fields_and_be_named() -> None:
    text = ONE_TABLE.replace('fp32_flops = "s"\nfp16_flops = "s"', 'rates = "sheet"')
    text = 'family = "Toys"\n[sources]\nsheet = "its data sheet (2026)"\n' + text
    toy = read_catalogue(text)["toy"]
    assert toy.family == "Toys"
    assert toy.sources["fp32_flops"] == toy.sources["fp16_flops"] == "its data sheet (2026)"
    assert toy.sources.keys() == read_catalogue(ONE_TABLE)["toy"].sources.keys()


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
        ("h100-80gb", "h100"),
        ("H100 SXM5 80 GB", "h100"),
        ("h100_sxm", "h100"),
        ("NVIDIA H100 Tensor Core GPU", "h100"),
        ("h100 pcie 80g", "h100-pcie"),
        ("B200 180GB", "b200"),
        ("RTX 3080 10GB", "rtx-3080"),
        ("A100 SXM 80GiB", "a100-80gb"),
        ("mi300x 192gb", "mi300x"),
        ("A10G", "a10g"),
        ("a10 24gb", "a10"),
        ("3060", "rtx-3060"),
        ("RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("NVIDIA GeForce RTX 3080", "rtx-3080"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Instinct MI325X", "mi325x"),
        ("Local", "local"),
    ],
)
def test_a_gpu_is_found_by_the_names_people_type(typed: str, name: str) -> None:
    assert canonical_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "candidates"),
    [
        ("a100", "a100-40gb, a100-40gb-pcie, a100-80gb, a100-80gb-pcie"),
        ("V100", "v100-16gb, v100-32gb"),
        ("v100 sxm2", "v100-16gb, v100-32gb"),
        ("A100 SXM4", "a100-40gb, a100-80gb"),
        ("RTX 4060 Ti", "rtx-4060-ti-8gb, rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 5060 Ti", "rtx-5060-ti-8gb, rtx-5060-ti-16gb"),
        ("RTX 6000", "rtx-6000-ada"),
    ],
)
def test_an_inexact_name_lists_the_candidates(typed: str, candidates: str) -> None:
    with pytest.raises(InvalidInput, match=f"choose one of {candidates}$"):
        canonical_name(typed)


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("", "choose a catalogue GPU, local or any"),
        ("gtx-9999", "choose a catalogue GPU, local or any"),
        ("nvidia", "choose a catalogue GPU, local or any"),
        ("a" * 500, "choose a catalogue GPU, local or any"),
        ("RTX 3065", "did you mean .*rtx-3060"),
        ("h100 96gb", "did you mean h100\\?"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "GPUs of laptops are other chips"),
        ("RTX 4090 mobile", "GPUs of laptops are other chips"),
    ],
)
def test_an_unknown_name_says_what_to_enter_instead(typed: str, instead: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"unknown gpu .*{instead}.*memorymark devices"
    ) as caught:
        canonical_name(typed)
    assert len(caught.value.fields["gpu"]) < 300


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
        ("NVIDIA GeForce RTX 3080 Laptop GPU", None),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("AMD Instinct MI250X/MI250", "mi250x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 4060 Ti", None),  # of 8 or 16 GB
        ("", None),
    ],
)
def test_a_gpu_is_found_by_its_drivers_name(device: str, name: str | None) -> None:
    assert catalogue_name(device) == name


@pytest.mark.parametrize(
    ("device", "gib", "name"),
    [
        ("NVIDIA GeForce RTX 4060 Ti", 7.6, "rtx-4060-ti-8gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.7, "rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 3080", 9.7, "rtx-3080"),
        ("NVIDIA GeForce RTX 3080", 11.7, "rtx-3080-12gb"),
        ("NVIDIA A10", 22.0, "a10"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.6, None),
    ],
)
def test_of_gpus_with_one_name_the_memory_decides(
    device: str, gib: float, name: str | None
) -> None:
    assert catalogue_name(device, round(gib * GIB)) == name


ADDED = replace(GPUS["a10"], name="rtx-9090", display_name="NVIDIA GeForce RTX 9090", family="Lab")


def test_a_lab_adds_gpus_for_a_while() -> None:
    with with_added([ADDED]):
        assert list(GPUS)[-1] == "rtx-9090"
        assert len(GPUS) == len(BUILT_IN) + 1
        assert canonical_name("rtx 9090") == catalogue_name("NVIDIA GeForce RTX 9090") == "rtx-9090"
    assert "rtx-9090" not in GPUS


def test_a_removed_gpu_is_not_offered_and_still_known_to_stored_analyses() -> None:
    with with_added(AddedGpus({}, {"rtx-9090": ADDED})):
        assert "rtx-9090" not in list(GPUS)
        assert GPUS["rtx-9090"] is ADDED
        assert canonical_name("rtx-9090") == "rtx-9090"
        with pytest.raises(InvalidInput, match="unknown"):
            canonical_name("RTX 9090")  # nobody types the exact name


def test_a_lab_has_prices_of_its_own_for_a_while() -> None:
    with with_added([ADDED]), with_prices({"a10": 0.25, "rtx-9090": 3.0}):
        assert (GPUS["a10"].price_per_hour_usd, GPUS["rtx-9090"].price_per_hour_usd) == (0.25, 3.0)
        assert GPUS["h100"] is BUILT_IN["h100"]
    assert GPUS["a10"] is BUILT_IN["a10"]


def test_a_built_in_gpu_comes_before_an_added_one_of_the_same_name() -> None:
    with with_added([replace(ADDED, name="a10")]):
        assert GPUS["a10"] is BUILT_IN["a10"]
        assert len(GPUS) == len(BUILT_IN)
