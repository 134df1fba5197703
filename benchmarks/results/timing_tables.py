"""Tables of how long searches, curves, pages and workers take, and on which machine."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.results.cells import Read, load, ms, table
from benchmarks.results.files import COMMANDS, Machine, Result


def search(read: Read) -> str:
    """The cost of each search for the largest batch, and whether it found it."""
    rows = read("search").figures["rows"]
    tools: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tools.setdefault(f"{row['tool']} {row['version'] or ''}".strip(), []).append(row)
    limits = [row["limit_bytes"] // 2**20 for row in next(iter(tools.values()))]
    order = " / ".join(str(limit) for limit in limits)
    return table(
        [f"search, limit {order} MiB", "trials", "seconds", "found, of the largest batch"],
        [
            [
                name,
                " / ".join(str(row["trials"]) for row in of_tool),
                " / ".join(f"{row['seconds']:.1f}" for row in of_tool),
                " / ".join(f"{row['answer']:,} of {row['truth']:,}" for row in of_tool),
            ]
            for name, of_tool in tools.items()
            if all(row["answer"] is not None for row in of_tool)
        ],
    )


def pages(read: Read) -> str:
    return table(
        [
            "pages",
            "1,000 analyses",
            "100,000 analyses",
            "slowest page",
            "ratio, median",
            "largest",
            "history as CSV",
        ],
        [_pages_row(read(name)) for name in ("pages-sqlite", "pages-postgresql")],
    )


def _pages_row(result: Result) -> list[str]:
    found = result.figures["pages"]
    slowest = max(found, key=lambda page: page["large_seconds"])
    farthest = max(found, key=lambda page: page["ratio"])
    file = result.figures["files"]["history, CSV"]
    return [
        f"{len(found)} pages, {result.figures['database']}{load(result)}",
        ms(median(page["small_seconds"] for page in found)),
        ms(median(page["large_seconds"] for page in found)),
        f"{ms(slowest['large_seconds'])} ({slowest['page']})",
        f"{median(page['ratio'] for page in found):.1f}",
        f"{farthest['ratio']:.1f} ({farthest['page']})",
        f"{file['seconds']:.1f} s, {file['bytes'] / 1e6:.0f} MB",
    ]


def answers(read: Read) -> str:
    """Time until an answer appears in the browser."""
    result = read("answers")
    return table(
        [f"seen in a browser, BERT on an A10{load(result)}", "times", "median", "slowest"],
        [
            [
                one["answer"],
                str(len(one["seconds"])),
                f"{one['median_seconds']:.1f} s",
                f"{max(one['seconds']):.1f} s",
            ]
            for one in result.figures["answers"]
        ],
    )


def recording(read: Read) -> str:
    figures = read("recording").figures
    names = {"plain": "plain", "trainer": "Trainer", "lightning": "Lightning"}
    overheads = table(
        ["loop", "pairs of steps", "a step", "with / without, median", "95% interval"],
        [
            [
                names[one["loop"]],
                f"{one['pairs']:,}",
                f"{1e3 * one['step_cpu_seconds']:.1f} ms",
                f"{one['ratio']:.4f}",
                f"{one['low']:.4f} to {one['high']:.4f}",
            ]
            for one in figures["overheads"]
        ],
    )
    return f"{overheads}\n\n`recording.step()` alone: {1e6 * figures['step_call_seconds']:.1f} µs."


def curve(read: Read) -> str:
    return table(
        ["the whole curve", "GPUs", "points", "first", "warm", "memory of the process"],
        [
            [
                f"{one['model']}, {one['described']}",
                str(len(one["limits"])),
                f"{sum(limit['points'] for limit in one['limits']):,}",
                f"{one['first_seconds']:.1f} s",
                f"{one['warm_seconds']:.1f} s",
                f"{one['peak_bytes'] / 2**30:.2f} GiB",
            ]
            for one in read("curve").figures["timings"]
        ],
    )


def workers(read: Read) -> str:
    rows = []
    for name in ("speed-sqlite", "speed-postgresql"):
        figures = read(name).figures
        cost = figures["worker_cpu_seconds_per_event"]
        rows.append(
            [
                figures["database"],
                *(
                    f"{ms(figures[took]['median'])}, at worst {ms(figures[took]['worst'])}"
                    for took in ("queued_to_started_seconds", "asked_to_cancelled_seconds")
                ),
                f"{1e6 * cost['median']:,.0f} µs",
            ]
        )
    return table(
        [
            "workers",
            "from queued to started",
            "from cancel request to cancelled",
            "worker's CPU time for an event",
        ],
        rows,
    )


def clients(read: Read) -> str:
    rows = []
    for result in (read(name) for name in ("clients-sqlite", "clients-postgresql")):
        figures = result.figures
        lost = sum(one["lost"] + one["doubled"] for one in figures["documents"])
        sent = sum(one["sent"] for one in figures["documents"])
        rows.append(
            [
                f"{figures['clients']} for {figures['seconds']:.0f} s, {figures['database']}"
                f"{load(result)}",
                f"{figures['requests']:,}",
                str(figures["errors"]),
                f"{lost} of {sent:,}",
            ]
        )
    return table(["clients", "requests", "errors", "lost or doubled"], rows)


def faults(read: Read) -> str:
    """The cost of each fault that was tried, on both databases."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    result = read("faults")
    tried = [one for one in result.figures["faults"] if not one["not_run"]]
    for one in tried:
        found.setdefault((one["fault"], one["where"]), {})[one["database"]] = one
    return table(
        [
            "fault",
            "where it hit",
            "analyses submitted",
            "lost",
            "doubled",
            f"recovery{load(result)}: SQLite",
            "PostgreSQL",
        ],
        [
            [
                *names,
                *(
                    f"{sum(one[count] for one in on.values())}"
                    for count in ("submitted", "lost", "doubled")
                ),
                *(_recovery(on.get(database)) for database in ("SQLite", "PostgreSQL")),
            ]
            for names, on in found.items()
        ],
    )


def _recovery(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "–"
    seconds = outcome["recovery_seconds"]
    return "never" if seconds is None else f"{seconds:.1f} s"


def machine(read: Read) -> str:
    """The machines behind the results, in a sentence."""
    machines: list[Machine] = [read(name).machine for name in COMMANDS]
    kinds = {
        f"{one.cores} cores with {one.memory_bytes / 2**30:.0f} GiB ({one.system})"
        for one in machines
    }
    loads = [one.load for one in machines]
    return (
        f"Times were measured on {' and on '.join(sorted(kinds))}, without a GPU.\nOther programs "
        "ran there too, before and meanwhile: the load is how many cores were wanted in the minute "
        f"before a command, {min(loads)} to {max(loads)}."
    )
