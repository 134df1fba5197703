"""The table of what recommended batches are worth in measured sweeps."""

from __future__ import annotations

from typing import Any

from benchmarks.results.cells import Read, percent, table


def regret(read: Read) -> str:
    """By source and bound; shares are of the best measured throughput of each sweep."""
    headings = [
        *("sweeps", "number", "kept, median", "from the smallest, median", "5th percentile"),
        *("at least 98%", "to start, at least 98%", "changes", "worst change", "slower by > 2%"),
        "gains missed",
    ]
    return table(headings, map(_row, read("regret").figures["groups"]))


def _row(group: dict[str, Any]) -> list[str]:
    smallest, number = group["smallest"], group["sweeps"]
    worst = group["worst"]
    return [
        group["name"],
        str(number),
        percent(group["kept"]["median"]),
        percent(smallest["median"]),
        percent(smallest["percentile_5"]),
        f"{smallest['enough']} of {number}",
        f"{group['to_start']['enough']} of {number}",
        f"{group['changes']} of {group['decisions']}",
        "-" if worst is None else f"{worst:.2f}×",
        str(group["slower"]),
        str(group["missed"]),
    ]
