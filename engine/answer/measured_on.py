"""What a measurement ran on, in words."""

from __future__ import annotations

from engine.result import MeasuredOn


def measured_on_in_words(found: MeasuredOn) -> list[tuple[str, str]]:
    """Device, libraries and settings, each with its label; what is not known is left out."""
    rows = [
        ("Device", _device(found)),
        ("Libraries", _libraries(found)),
        ("fp32 products", _precision(found)),
        ("cuDNN", _cudnn(found)),
        ("Allocator options", _allocator(found)),
        ("Power and clock", _power(found)),
        ("Host threads", f"{found.cpu_threads:,}"),
    ]
    return [(label, said) for label, said in rows if said]


def _device(found: MeasuredOn) -> str:
    capability = found.compute_capability
    return f"{found.device}, compute capability {capability}" if capability else found.device


def _libraries(found: MeasuredOn) -> str:
    versions = [f"torch {found.torch}", f"transformers {found.transformers}"]
    versions += [f"CUDA {found.cuda}"] if found.cuda else []
    versions += [f"driver {found.driver}"] if found.driver else []
    return ", ".join(versions)


def _precision(found: MeasuredOn) -> str:
    if not found.matmul_precision:
        return ""
    return f"matrix {found.matmul_precision}, convolution {found.convolution_precision}"


def _cudnn(found: MeasuredOn) -> str:
    if not found.cudnn:
        return ""
    benchmark = "on" if found.cudnn_benchmark else "off"
    deterministic = "only" if found.deterministic else "not required"
    return f"{found.cudnn}, benchmark {benchmark}, deterministic algorithms {deterministic}"


def _allocator(found: MeasuredOn) -> str:
    return (found.allocator or "PyTorch's default") if found.cuda else ""


def _power(found: MeasuredOn) -> str:
    figures = []
    if found.power_limit_watts is not None:
        figures.append(f"limit {found.power_limit_watts:,.0f} W")
    if found.clock_mhz is not None:
        figures.append(f"{found.clock_mhz:,} MHz before a step")
    if found.largest_clock_mhz is not None:
        figures.append(f"at most {found.largest_clock_mhz:,} MHz")
    return ", ".join(figures)
