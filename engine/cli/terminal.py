"""Output on a terminal: answers on stdout, progress on stderr, and the tables they are made of.

Rich is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from ..answer.figures import SPEED, TOKEN_SPEED
from ..events import Emit, Event, Log, Stage, about, seconds_left
from ..interface.tokens import Tokens
from ..interface.trial import Trial

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

OK, FAILED = 0, 1
"""Exit statuses of a command that answered, and of one that could not."""


def answer(
    options: argparse.Namespace, plain: object, rendered: Callable[[], RenderableType]
) -> None:
    """Print an answer.

    Args:
        options: Say whether as JSON.
        plain: The answer as JSON has it.
        rendered: Makes the tables, where those are wanted.
    """
    if options.json:
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        from rich.console import Console

        Console(highlight=False, markup=False, emoji=False).print(rendered())


def table(*, show_header: bool = True, dense: bool = False) -> Table:
    """An empty table in our style; a dense one has no space between its columns."""
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        padding=0 if dense else (0, 1, 0, 0),
    )


def section(title: str, body: RenderableType) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(""), Text(title, style="bold underline"), body)


def speed_headings(counted: Tokens | None) -> list[str]:
    """The headings of a table's speeds: samples, and tokens where they are counted."""
    units = ["samples", counted.unit] if counted else ["samples"]
    return [f"{unit} per s".replace(" ", "\n", unit.count(" ") + 1) for unit in units]


def speeds(samples_per_second: float | None, counted: Tokens | None) -> list[str]:
    """The cells below :func:`speed_headings`."""
    cells = [SPEED.number(samples_per_second)]
    if counted:
        cells.append(TOKEN_SPEED.number(counted.per_second(samples_per_second)))
    return cells


def bullets(sentences: Iterable[str]) -> Table:
    from rich.table import Table

    listed = Table.grid(padding=(0, 1))
    for sentence in sentences:
        listed.add_row("•", sentence)
    return listed


@contextmanager
def progress() -> Iterator[Emit]:
    """Show progress on stderr for as long as the context lasts.

    The bar pulses where it is not known how far a stage is, as in a search, and the time left is
    that of the stage. Without a terminal there is no bar: each stage is a line. Anything printed in
    the meantime goes to stderr, so that stdout holds nothing but the answer.

    Yields:
        The function that takes the engine's events.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    seen: list[tuple[Stage, float]] = []

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = seconds_left(seen, time.monotonic())
            return Text("" if left is None else about(left))

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeLeft(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar, redirect_stdout(sys.stderr):
        task = bar.add_task("Loading PyTorch", total=None)
        tried, stage = 0, "Working"

        def emit(event: Event) -> None:
            nonlocal tried, stage
            match event:
                case Log():
                    # Left unwrapped: a terminal wraps by itself, and a log file keeps whole lines.
                    bar.console.print(_line(event), soft_wrap=True)
                case Trial():
                    tried += 1
                case Stage():
                    stage = f"{event}".capitalize()
                    seen.append((event, time.monotonic()))
                    total = None if event.fraction is None else 1.0
                    bar.update(task, total=total, completed=event.fraction or 0.0)
                    if not console.is_terminal:
                        bar.console.print(_line(Log(stage)))
            tries = f", batch sizes tried: {tried}" if tried else ""
            bar.update(task, description=f"{stage}{tries}")

        yield emit


def _line(log: Log) -> Text:
    from rich.text import Text

    if log.level == "warning":
        return Text(f"warning: {log.message}", style="yellow")
    return Text(log.message, style="dim")
