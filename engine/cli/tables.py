"""The parts that every answer in a terminal is made of."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def table(*, show_header: bool = True, dense: bool = False) -> Table:
    """An empty table in the one style; a dense one has no space between its columns."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        padding=0 if dense else (0, 1, 0, 0),
    )


def section(title: str, body: RenderableType) -> RenderableType:
    """Something under a title, with an empty line above."""
    return Group(Text(""), Text(title, style="bold underline"), body)


def bullets(sentences: Iterable[str]) -> Table:
    """Sentences as a list."""
    listed = Table.grid(padding=(0, 1))
    for sentence in sentences:
        listed.add_row("•", sentence)
    return listed
