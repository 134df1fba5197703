"""What a person sees on stderr while the engine works: its log lines above a moving bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from engine.events import Event, Log
from engine.result import Trial


@contextmanager
def progress() -> Iterator[Callable[[Event], None]]:
    """Show progress on stderr for as long as the context lasts.

    The bar only pulses, since nobody knows beforehand how many trials a search takes; without a
    terminal there is none, and the log lines remain. Whatever is printed meanwhile goes to stderr,
    so that stdout holds the answer and nothing else.

    Yields:
        The function that takes the engine's events.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar, redirect_stdout(sys.stderr):
        task = bar.add_task("Loading PyTorch", total=None)
        tried = 0

        def emit(event: Event) -> None:
            nonlocal tried
            match event:
                case Log():
                    # Not wrapped by us: a terminal does it, and a log file keeps whole lines.
                    bar.console.print(_line(event), soft_wrap=True)
                case Trial():
                    tried += 1
            bar.update(task, description=f"Working, batch sizes tried: {tried}")

        yield emit


def _line(log: Log) -> Text:
    if log.level == "warning":
        return Text(f"warning: {log.message}", style="yellow")
    return Text(log.message, style="dim")
