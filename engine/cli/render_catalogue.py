"""The models and GPUs that there are, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..core.numbers import UNKNOWN, usd
from ..core.parsing import shown
from ..core.sizes import gib_number
from ..gpus import LOCAL, Gpu, Vendor, by_family
from ..models.architectures import ARCHITECTURES, Architecture
from ..models.coverage import Coverage, checked_with
from ..models.model import Model
from ..models.tasks import SizeLimits
from . import terminal


def render_models(presets: Sequence[Model]) -> RenderableType:
    table = terminal.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("model")
    table.add_column("input size\n(default)", no_wrap=True)
    for preset in presets:
        hub = "" if preset.hub_id == preset.name else f"\n{preset.hub_id}"
        table.add_row(
            Text(preset.name).append(hub, style="dim"),
            f"{preset.display_name}: {preset.description}",
            _input_size(preset),
        )
    return table


def render_types_named(part: str) -> RenderableType:
    """The model types that a config may have with a part of a name that no preset has."""
    named = {name: one for name, one in ARCHITECTURES.items() if part.lower() in name}
    told = f"No preset has {shown(part)} in its name"
    if not named:
        return Text(f"{told}, and no model type that a config may have.")
    told += "; enter the Hugging Face ID or the config of a model with one of these types:"
    return Group(Text(told), _table_of(named))


def render_architectures(architectures: Mapping[str, Architecture]) -> RenderableType:
    """Tasks that each ``model_type`` can be trained for, and those refused, with the reason."""
    found = Coverage.of(architectures.values())
    note = (
        f"{found.predicted_types} of {found.types} model types and {found.predicted_pairs} of "
        f"{found.pairs} pairs of type and task are supported: traced, a small model of each was "
        f"equal to real steps on a CPU to the byte, with transformers {checked_with()}."
    )
    return Group(_table_of(architectures), Text(note, style="dim"))


def _table_of(architectures: Mapping[str, Architecture]) -> Table:
    table = terminal.table()
    table.add_column("model type", no_wrap=True, style="cyan")
    table.add_column("tasks")
    table.add_column("not supported", style="dim")
    for name, architecture in architectures.items():
        packages = f"\nneeds {' and '.join(architecture.needs)}" if architecture.needs else ""
        table.add_row(
            Text(name).append(packages, style="dim"),
            "\n".join(architecture.tasks),
            "\n".join(f"{task}: {reason}" for task, reason in architecture.refused.items()),
        )
    return table


def render_devices(gpus: Sequence[Gpu]) -> RenderableType:
    table = terminal.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("GPU")
    numbers = (
        "memory\nGiB",
        "usable\nGiB",
        "compute\ncapability",
        "bf16",
        "price\nper hour",
        "price\nspot",
    )
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for family, members in by_family(gpus).items():
        table.add_section()
        table.add_row("", Text(family, style="bold"))
        for gpu in members:
            table.add_row(*_device(gpu))
    notes = (
        "Memory is what CUDA or ROCm reports; usable is what its context leaves to PyTorch. Prices "
        "are assumed, on demand and spot (may be interrupted); set your own with --price-per-hour. "
        "--json gives the source of each number. "
        f"--gpu {LOCAL} measures on this machine's device instead."
    )
    return Group(table, Text(f"\n{notes}", style="dim"))


def _device(gpu: Gpu) -> list[str]:
    on_cuda = gpu.vendor is Vendor.NVIDIA
    return [
        gpu.name,
        gpu.display_name,
        gib_number(gpu.total_bytes),
        gib_number(gpu.usable_bytes),
        f"{gpu.compute_capability:.1f}" if on_cuda else UNKNOWN,
        "yes" if gpu.bf16_flops is not None else "no",
        usd(gpu.price_per_hour_usd),
        usd(gpu.spot_price_per_hour_usd),
    ]


def _input_size(preset: Model) -> str:
    sizes = []
    if preset.sequence_length is not None:
        sizes.append(f"{_limits(preset.sequence_length)} tokens")
    if preset.image_size is not None:
        sizes.append(f"{_limits(preset.image_size)} pixels per side")
    if preset.image_count is not None:
        sizes.append(f"{_limits(preset.image_count)} images")
    return "\n".join(sizes)


def _limits(limits: SizeLimits) -> str:
    if limits.smallest == limits.largest:
        return str(limits.default)
    return f"{limits.smallest} to {limits.largest} ({limits.default})"
