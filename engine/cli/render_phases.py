"""Peaks of memory by phase of a training run, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..answer.phases import about_phases
from ..core.sizes import gib_number
from ..interface.result import Phase
from . import terminal


def phases_section(phases: Sequence[Phase], batch_size: int) -> list[RenderableType]:
    """The section with the peaks of all phases; none where they are not known."""
    if not phases:
        return []
    table = terminal.table()
    table.add_column("phase", no_wrap=True)
    for heading in ("GPU\nGiB", "host\nGiB", "processes\non a node"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    for phase in phases:
        table.add_row(
            phase.name,
            gib_number(phase.peak_device_bytes),
            gib_number(phase.peak_host_bytes),
            f"{phase.host_processes:,}",
            phase.source,
        )
    hows = [f"{phase.name.capitalize()}: {phase.how}" for phase in phases]
    notes = [Text(about) for about in about_phases(phases, batch_size)]
    notes += [Text(how, style="dim") for how in hows]
    return [terminal.section("Peak memory by phase", Group(table, *notes))]
