"""Tables of a lab at several sizes, up to a million analyses."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.results.cells import Read, load, ms, table

_SHOWN = 10
_LARGER = 10
"""Factor over the largest measured lab that the next column is computed for."""


def pages(read: Read) -> str:
    """The pages that grow most, and the others together."""
    result = read("scale-postgresql")
    labs = result.figures["labs"]
    first, *_, last = (lab["pages"] for lab in labs)
    growth = {
        name: last[name]["fastest_seconds"] / first[name]["fastest_seconds"] for name in first
    }
    order = sorted(growth, key=lambda name: -growth[name])
    rows = [
        [name, *(ms(lab["pages"][name]["median_seconds"]) for lab in labs), f"{growth[name]:.2f}"]
        for name in order[:_SHOWN]
    ]
    others = order[_SHOWN:]
    medians = [ms(median(lab["pages"][name]["median_seconds"] for name in others)) for lab in labs]
    rows.append([f"the other {len(others)}", *medians, f"at most {growth[others[0]]:.2f}"])
    heading = "ratio of the fastest, largest to smallest"
    return table([f"page{load(result)}", *_sizes(labs), heading], rows)


def queue(read: Read) -> str:
    """Waiting times of nodes and scripts in each lab."""
    result = read("scale-postgresql")
    labs = result.figures["labs"]
    rows = [
        ["submitted by the API, in one process", *(_times(lab["submits"]) for lab in labs)],
        [
            "submitted per second to a site, 8 clients",
            *(f"{lab['submitted_per_second']:,.0f}" for lab in labs),
        ],
        ["look into a queue without work", *(_times(lab["polls"]) for lab in labs)],
        ["heartbeat of a node", *(_times(lab["heartbeats"]) for lab in labs)],
    ]
    for waiting in labs[0]["claims"]:
        for what in ("chosen", "claimed"):
            times = (_times(lab["claims"][waiting][what]) for lab in labs)
            rows.append([f"job {what}, {int(waiting):,} waiting", *times])
    rows += [
        [f"old rows removed: `{name}`", *(_removed(lab, name) for lab in labs)]
        for name in labs[-1]["removals"]
    ]
    rows += [
        ["all indexes of analyses built again", *(_seconds(lab["index_seconds"]) for lab in labs)],
        [
            "backup, read back",
            *(
                f"{_seconds(lab['backup']['seconds'])}, {_size(lab['backup']['bytes'])}"
                if lab["backup"]
                else "not measured"
                for lab in labs
            ),
        ],
    ]
    return table([f"median / 95% took no longer{load(result)}", *_sizes(labs)], rows)


def sizes(read: Read) -> str:
    """Bytes per analysis by table, and what ten times the largest lab takes."""
    lab = read("scale-postgresql").figures["labs"][-1]
    analyses, tables = lab["filled"]["analyses"], lab["sizes"]["tables"]
    parts = ("row_bytes", "long_value_bytes", "index_bytes")
    shown = [name for name, found in tables.items() if sum(map(found.get, parts)) >= analyses]
    rows = [
        [
            f"`{name}`",
            *(f"{tables[name][part] / analyses:,.0f}" for part in parts),
            _size(sum(tables[name][part] for part in parts)),
            _size(_LARGER * sum(tables[name][part] for part in parts)),
        ]
        for name in shown
    ]
    total = sum(found[part] for found in tables.values() for part in parts)
    rows.append(["all tables", "", "", "", _size(total), _size(_LARGER * total)])
    return table(
        [
            "table, bytes per analysis",
            "rows",
            "long values",
            "indexes",
            f"{analyses:,} analyses (measured)",
            f"{_LARGER * analyses:,} (computed)",
        ],
        rows,
    )


def _sizes(labs: list[dict[str, Any]]) -> list[str]:
    return [f"{lab['filled']['analyses']:,} analyses" for lab in labs]


def _times(found: dict[str, Any]) -> str:
    return (
        " / ".join(
            f"{1e3 * found[name]:,.1f}" for name in ("median_seconds", "percentile_95_seconds")
        )
        + " ms"
    )


def _removed(lab: dict[str, Any], rule: str) -> str:
    found = lab["removals"][rule]
    return f"{found['rows'] / found['seconds']:,.0f} rows/s" if found["rows"] else "none due"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
