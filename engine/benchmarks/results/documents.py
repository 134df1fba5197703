"""Puts the tables into README and docs, between marks that are not shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from engine.benchmarks.results.file import read
from engine.benchmarks.results.tables import BLOCKS, Read

ROOT = Path(__file__).parents[3]

_BLOCK = re.compile(r"(<!-- results (\S+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def documents() -> list[Path]:
    """README and docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str, read: Read = read) -> str:
    """A document's text, with every table made anew.

    Raises:
        ValueError: If it asks for a table that is not known, or a file lacks what a table tells.
    """

    def table(found: re.Match[str]) -> str:
        name = found[2]
        if name not in BLOCKS:
            raise ValueError(f"no table is called {name}; there are {', '.join(BLOCKS)}")
        try:
            return f"{found[1]}\n{BLOCKS[name](read)}\n{found[3]}"
        except KeyError as missing:
            raise ValueError(
                f"a file behind the table {name} has no {missing}, since it is older than the "
                "table; run its command again"
            ) from missing

    return _BLOCK.sub(table, text)


def fill_all() -> Iterator[Path]:
    """Fill every document; yields those that change."""
    for document in documents():
        text = document.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            document.write_text(new, encoding="utf-8")
            yield document
