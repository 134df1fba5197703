"""The lists of models and of GPUs as rich tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from engine.cli import tables
from engine.gpus import GIB, LOCAL, Gpu
from engine.models.kinds import SizeLimits
from engine.models.presets import Preset


def render_models(presets: Sequence[Preset]) -> RenderableType:
    """The models that can be named, with their input sizes."""
    table = tables.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("model", no_wrap=True)
    table.add_column("trained how")
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


def render_devices(gpus: Sequence[Gpu]) -> RenderableType:
    """The GPUs of the catalogue with their memory, compute capability and price."""
    table = tables.table()
    table.add_column("name", no_wrap=True, style="cyan")
    table.add_column("GPU")
    for heading in ("memory\nGiB", "usable\nGiB", "compute\ncapability", "bf16", "USD\nper hour"):
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in gpus:
        table.add_row(
            gpu.name,
            gpu.display_name,
            f"{gpu.total_bytes / GIB:.2f}",
            f"{gpu.usable_bytes / GIB:.2f}",
            f"{gpu.compute_capability:.1f}",
            "yes" if gpu.bf16_flops is not None else "no",
            f"{gpu.price_per_hour_usd:.2f}",
        )
    notes = (
        "Memory is what CUDA reports; usable is what it leaves to PyTorch beside its context. "
        "Prices are assumed; --price-per-hour sets your own. --json gives the source of each "
        f"figure. --gpu {LOCAL} measures on this machine's own device instead."
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
