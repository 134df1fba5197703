"""The models and GPUs that there are, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..gpus import GIB, LOCAL, Gpu
from ..models.architectures import Architecture
from ..models.kinds import SizeLimits
from ..models.presets import Preset
from . import terminal
from .render import NOT_KNOWN


def render_models(presets: Sequence[Preset]) -> RenderableType:
    table = terminal.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("model", no_wrap=True)
    table.add_column("description")
    table.add_column("input size\n(default)")
    for preset in presets:
        hub = Text(f"\n{preset.hub_id}", style="dim")
        table.add_row(
            preset.name,
            Text(preset.display_name).append_text(hub),
            preset.description,
            _input_size(preset),
        )
    return table


def render_architectures(architectures: Mapping[str, Architecture]) -> RenderableType:
    """What a config's ``model_type`` can be trained for, and what for not, with the reason."""
    table = terminal.table()
    table.add_column("model type", no_wrap=True, style="cyan")
    table.add_column("tasks")
    table.add_column("not supported", style="dim")
    for name, architecture in architectures.items():
        table.add_row(
            name,
            "\n".join(architecture.tasks),
            "\n".join(f"{task}: {reason}" for task, reason in architecture.refused.items()),
        )
    types = sum(bool(architecture.tasks) for architecture in architectures.values())
    pairs = sum(len(architecture.tasks) for architecture in architectures.values())
    tried = pairs + sum(len(architecture.refused) for architecture in architectures.values())
    note = (
        f"{types} of {len(architectures)} model types and {pairs} of {tried} pairs of type and "
        "task are supported: traced, a small model of each was equal to real steps to the byte."
    )
    return Group(table, Text(note, style="dim"))


def render_devices(gpus: Sequence[Gpu]) -> RenderableType:
    table = terminal.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("GPU")
    numbers = (
        "memory\nGiB",
        "usable\nGiB",
        "compute\ncapability",
        "bf16",
        "USD\nper hour",
        "USD\nspot",
    )
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in gpus:
        spot = gpu.spot_price_per_hour_usd
        table.add_row(
            gpu.name,
            gpu.display_name,
            f"{gpu.total_bytes / GIB:.2f}",
            f"{gpu.usable_bytes / GIB:.2f}",
            f"{gpu.compute_capability:.1f}",
            "yes" if gpu.bf16_flops is not None else "no",
            f"{gpu.price_per_hour_usd:.2f}",
            NOT_KNOWN if spot is None else f"{spot:.2f}",
        )
    notes = (
        "Memory is what CUDA reports; usable is what its context leaves to PyTorch. Prices are "
        "assumed, on demand and spot (may be interrupted); set your own with --price-per-hour. "
        "--json gives the source of each number. "
        f"--gpu {LOCAL} measures on this machine's device instead."
    )
    return Group(table, Text(f"\n{notes}", style="dim"))


def _input_size(preset: Preset) -> str:
    sizes = []
    if preset.sequence_length is not None:
        sizes.append(f"{_limits(preset.sequence_length)} tokens")
    if preset.image_size is not None:
        sizes.append(f"{_limits(preset.image_size)} pixels per side")
    return ", ".join(sizes)


def _limits(limits: SizeLimits) -> str:
    return f"{limits.smallest} to {limits.largest} ({limits.default})"
