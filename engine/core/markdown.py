"""Text and tables in Markdown, in which names of ours and of others are no markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"[\\`*_\[\]<>|]")


def plain(text: str) -> str:
    """The text without anything that Markdown or HTML would take for markup."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain cells; rows have as many as there are heads."""
    lines = [_line(map(plain, heads)), _line(["---"] * len(heads))]
    return "\n".join([*lines, *(_line(map(plain, cells)) for cells in rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
