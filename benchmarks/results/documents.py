"""Fills the tables of README and docs, between hidden marks, from the result files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.results import (
    accuracy_tables,
    compat_tables,
    h100_tables,
    model_tables,
    past_errors,
    regret_tables,
    scale_tables,
    setting_tables,
    step_time_tables,
    timing_tables,
)
from benchmarks.results.cells import Read
from benchmarks.results.files import read
from engine.prediction.timing.past_errors import FILE as PAST_ERRORS

BLOCKS: dict[str, Callable[[Read], str]] = {
    "accuracy": accuracy_tables.accuracy,
    "h100": h100_tables.h100,
    "published": accuracy_tables.published,
    "ways": accuracy_tables.by_way,
    "others": accuracy_tables.others,
    "asked": accuracy_tables.asked,
    "interval": accuracy_tables.interval,
    "cpu": accuracy_tables.cpu,
    "search": timing_tables.search,
    "pages": timing_tables.pages,
    "scale-pages": scale_tables.pages,
    "scale-queue": scale_tables.queue,
    "scale-bytes": scale_tables.sizes,
    "answers": timing_tables.answers,
    "recording": timing_tables.recording,
    "compiled": model_tables.compiled,
    "compat": compat_tables.compat,
    "curve": timing_tables.curve,
    "settings": setting_tables.settings,
    "combinations": setting_tables.combinations,
    "largest": model_tables.largest,
    "scripts": accuracy_tables.scripts,
    "step-time": step_time_tables.step_time,
    "step-time-ratios": step_time_tables.step_time_ratios,
    "step-time-learned": step_time_tables.step_time_learned,
    "step-time-sweeps": step_time_tables.step_time_sweeps,
    "step-time-ranges": step_time_tables.step_time_ranges,
    "regret": regret_tables.regret,
    "workers": timing_tables.workers,
    "clients": timing_tables.clients,
    "faults": timing_tables.faults,
    "machine": timing_tables.machine,
}
"""The text between ``<!-- results NAME -->`` and ``<!-- end -->`` in a document."""

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"(<!-- results (\S+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str, read: Read = read) -> str:
    """A document's text with every table filled again.

    Raises:
        ValueError: If it names an unknown table, or a result file lacks a field of the table.
    """

    def table(found: re.Match[str]) -> str:
        name = found[2]
        if name not in BLOCKS:
            raise ValueError(f"no table is called {name}; choose from {', '.join(BLOCKS)}")
        try:
            return f"{found[1]}\n{BLOCKS[name](read)}\n{found[3]}"
        except KeyError as missing:
            raise ValueError(
                f"a file behind the table {name} has no {missing}, since it is older than the "
                "table; run its command again"
            ) from missing

    return _BLOCK.sub(table, text)


def fill_all() -> Iterator[Path]:
    """Fill every document, and the file of past errors; yields those that change."""
    new = {document: filled(document.read_text(encoding="utf-8")) for document in documents()}
    new[PAST_ERRORS] = past_errors.contents(read)
    for file, text in new.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            yield file
