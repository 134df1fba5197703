"""The command ``selfcheck``: what predictions for this machine rest on, and how right they are."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..gpus.checked import Comparison, SelfCheck, measured_rows
from ..gpus.known import write_own
from .terminal import FAILED, OK, answer, bullets, progress, section, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ABOUT = "memory, launch times and rates, and small workloads beside their predictions"

_MIB = 2**20


def selfcheck(options: argparse.Namespace) -> int:
    """Check this machine and store the result. The status is 1 if something does not run."""
    with progress() as emit:
        from ..selfcheck.check import self_check

        check = self_check(emit)
    path = write_own(check)
    sys.stderr.write(f"stored in {path}\n")
    answer(options, check.to_dict(), lambda: render(check))
    return FAILED if check.problems else OK


def render(check: SelfCheck) -> RenderableType:
    """A self-check as tables."""
    from rich.console import Group
    from rich.text import Text

    device = check.device.name if check.device else "this machine"
    parts: list[RenderableType] = [
        Text(f"{device}, {check.when[:16].replace('T', ' ')} UTC, in {check.seconds:.0f} s"),
        Text(check.sentence, style="bold green" if not check.problems else "bold yellow"),
    ]
    if check.problems:
        told = [f"{one.what}: {one.reason}\n{one.advice}" for one in check.problems]
        parts.append(section("What does not run here", bullets(told)))
    if check.comparisons:
        parts.append(section("Measured vs. predicted", _comparisons(check.comparisons)))
    parts.append(section("Measured", _measured(check)))
    if check.fixed_costs:
        parts.append(section("Memory after the first use of", _fixed_costs(check)))
    return Group(*parts)


def _comparisons(comparisons: tuple[Comparison, ...]) -> Table:
    shown = table()
    for heading in ("workload", "batch", "counted"):
        shown.add_column(heading, overflow="fold")
    for heading in ("measured", "predicted", "error"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for one in comparisons:
        numbers = (one.measured_in_unit, one.predicted_in_unit, one.error_in_percent)
        shown.add_row(one.workload, f"{one.batch_size:,}", one.label, *numbers)
    return shown


def _measured(check: SelfCheck) -> Table:
    shown = table(show_header=False)
    shown.add_column(style="cyan")
    shown.add_column(justify="right", no_wrap=True)
    for name, value in measured_rows(check):
        shown.add_row(name, value)
    return shown


def _fixed_costs(check: SelfCheck) -> Table:
    shown = table()
    shown.add_column("work")
    for heading in ("device used", "outside\nthe allocator", "workspaces"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for cost in check.fixed_costs:
        sizes = (cost.device_used_bytes, cost.outside_bytes, cost.allocated_bytes)
        shown.add_row(cost.after, *(f"{size / _MIB:,.1f} MiB" for size in sizes))
    return shown
