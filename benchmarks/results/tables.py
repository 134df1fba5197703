"""Tables of the result files, written into README and docs between hidden marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import estimators, xmem
from benchmarks.errors import Errors
from benchmarks.results import past_errors
from benchmarks.results.files import COMMANDS, Machine, Result, read
from engine.prediction.past_errors import FILE as PAST_ERRORS

Read = Callable[[str], Result]
"""Reads a result by its name."""


_CPU = ("cpu", "cpu-gpt2")
"""GPT-2 needs more memory than the others at any batch size, so it has its own limit."""


def accuracy(read: Read) -> str:
    """Predicted vs. measured memory, with one row per kind of measurement."""
    summary, on_cpu = read("accuracy").figures["summary"], [read(name).figures for name in _CPU]
    verdicts = f"{summary['false_safe']} of {summary['ran_out']}"
    real = Errors.of(one["error"] for checked in on_cpu for one in checked["comparisons"])
    fits = [fit for checked in on_cpu for fit in checked["fits"]]
    over = [fit["predicted"] for fit in fits if not fit["measured"]]
    rows = [
        _errors_row("published GPU measurements, setup fully known", summary["known"], ""),
        _errors_row("the same, nothing added for older software", summary["plain"], ""),
        _errors_row("all published GPU measurements", summary["every"], verdicts),
        _errors_row("real steps on a CPU", asdict(real), f"{sum(over)} of {len(over)}"),
    ]
    times = read("step_time").figures["summary"]
    rows.append(_errors_row("published step times, the model not fitted", times["unseen"], ""))
    headings = ["predicted vs.", "numbers", "median error", "95th percentile", "worst"]
    return _table([*headings, "false safe"], rows)


def _errors_row(name: str, errors: dict[str, Any], false_safe: str) -> list[str]:
    shares = [_percent(errors[figure]) for figure in ("median", "percentile_95", "worst")]
    return [name, str(errors["compared"]), *shares, false_safe]


def published(read: Read) -> str:
    return _table(
        ["published measurement", "GPU", "counted", "measured", "predicted", "error"],
        [_published_row(one) for one in read("accuracy").figures["comparisons"]],
    )


def _published_row(one: dict[str, Any]) -> list[str]:
    known = one["measurement"]
    growth = "growth of " if known["growth_from"] is not None else ""
    star = "" if known["complete"] else " \\*"
    if one["error"] is None:
        right = "right" if one["fits"] is known["ran"] else "**wrong**"
    else:
        right = f"{100 * one['error']:+.1f}%"
    return [
        known["name"] + star,
        known["gpu"]["display_name"].removeprefix("NVIDIA "),
        f"{growth}{known['counted']}",
        "out of memory" if known["published"] is None else _in(known["published"], known["unit"]),
        _in(one["predicted"], known["unit"]) + ("" if one["fits"] else ", does not fit"),
        right,
    ]


def others(read: Read) -> str:
    """Our errors and verdicts beside those of the estimators that xMem was compared with."""
    found = read("accuracy").figures["xmem"]
    return _table(xmem.HEADINGS, map(xmem.cells, found["scores"]))


def asked(read: Read) -> str:
    """What estimators that can be installed say of the same runs."""
    found = read("accuracy").figures["estimators"]
    return _table(estimators.HEADINGS, map(estimators.cells, found))


def interval(read: Read) -> str:
    figures = read("accuracy").figures
    summary, runs = figures["summary"], figures["xmem"]
    return (
        f"Of the {summary['known']['compared']} published numbers whose setup is fully known, "
        f"those of the A10 among them, {summary['within_range']} lie within it; of xMem's "
        f"{runs['fitted']} runs that fitted, {runs['within_interval']}."
    )


def cpu(read: Read) -> str:
    rows = []
    for figures in (read(name).figures for name in _CPU):
        found = [one["residual"] for one in figures["comparisons"]]
        peaks = {(one["workload"]["model"], one["batch_size"]): one for one in found}
        rows += [_cpu_row(fit, peaks) for fit in figures["fits"]]
    headings = ["model", "batch", "measured", "predicted", "measured peak", "predicted peak"]
    return _table(headings, rows)


def _cpu_row(fit: dict[str, Any], peaks: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    found = peaks.get((fit["model"], fit["batch_size"]))
    both = [f"{found[figure]:,} B" if found else "" for figure in ("measured", "predicted")]
    return [
        fit["model"],
        str(fit["batch_size"]),
        _fits(fit["measured"]),
        _fits(fit["predicted"]),
        *both,
    ]


def _fits(fits: bool) -> str:
    return "fits" if fits else "does not fit"


def search(read: Read) -> str:
    """What each search for the largest batch cost, and whether it found it."""
    rows = read("search").figures["rows"]
    tools: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tools.setdefault(f"{row['tool']} {row['version'] or ''}".strip(), []).append(row)
    limits = [row["limit_bytes"] // 2**20 for row in next(iter(tools.values()))]
    order = " / ".join(str(limit) for limit in limits)
    return _table(
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
    return _table(
        ["pages", "1,000 analyses", "100,000 analyses", "slowest page", "ratio, median", "largest"],
        [_pages_row(read(name)) for name in ("pages-sqlite", "pages-postgresql")],
    )


def _pages_row(result: Result) -> list[str]:
    found = result.figures["pages"]
    slowest = max(found, key=lambda page: page["large_seconds"])
    farthest = max(found, key=lambda page: page["ratio"])
    return [
        f"{len(found)} pages, {result.figures['database']}{_load(result)}",
        _ms(median(page["small_seconds"] for page in found)),
        _ms(median(page["large_seconds"] for page in found)),
        f"{_ms(slowest['large_seconds'])} ({slowest['page']})",
        f"{median(page['ratio'] for page in found):.1f}",
        f"{farthest['ratio']:.1f} ({farthest['page']})",
    ]


def answers(read: Read) -> str:
    """How soon an answer appears in the browser."""
    result = read("answers")
    return _table(
        [f"seen in a browser, BERT on an A10{_load(result)}", "times", "median", "slowest"],
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
    table = _table(
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
    return f"{table}\n\n`recording.step()` alone: {1e6 * figures['step_call_seconds']:.1f} µs."


def curve(read: Read) -> str:
    return _table(
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


def scripts(read: Read) -> str:
    """Training scripts as people write them: what a prediction takes, and how far off it is."""
    result = read("real_code")
    headings = ["script", "about", "lines added", f"seconds{_load(result)}", "on an A10"]
    return _table(
        [*headings, "vs. real steps on a CPU"],
        [_script_row(one) for one in result.figures["scripts"]],
    )


def _script_row(one: dict[str, Any]) -> list[str]:
    predicted, measured = one["predicted_bytes"], one["measured_bytes"]
    if measured is None:
        compared = "not run"
    else:
        compared = "equal" if predicted == measured else f"{predicted - measured:+,} B"
    refused = one["gpu_bytes"] is None
    return [
        one["name"],
        one["about"],
        str(one["lines"]),
        f"{one['seconds']:.1f}",
        "refused, with its line" if refused else f"{one['gpu_bytes'] / 2**20:,.0f} MiB",
        compared,
    ]


def step_time(read: Read) -> str:
    """How far predicted step times are off, where the constants had not seen the model."""
    return _table(
        ["published steps", "rows", "median error", "90th percentile", "assumed", "five fitted"],
        [
            [
                one["group"].strip(),
                f"{one['rows']:,}",
                *(_percent(one[name]) for name in ("median", "percentile_90", "before", "five")),
            ]
            for one in read("step_time").figures["errors"]
        ],
    )


def step_time_ratios(read: Read) -> str:
    """How far predicted ratios of speeds are off."""
    return _table(
        ["ratio of speeds", "pairs", "median error", "90th percentile"],
        [
            [
                one["group"],
                f"{one['pairs']:,}",
                _percent(one["median"]),
                _percent(one["percentile_90"]),
            ]
            for one in read("step_time").figures["ratios"]
        ],
    )


def step_time_learned(read: Read) -> str:
    """What steps measured on a GPU are worth."""
    return _table(
        ["measured on the GPU", "steps", "median error", "before", "90th percentile", "before"],
        [
            [
                one["known"],
                f"{one['rows']:,}",
                *(_percent(one[name]) for name in ("median", "before")),
                *(_percent(one[name]) for name in ("percentile_90", "before_percentile_90")),
            ]
            for one in read("step_time").figures["learned"]
        ],
    )


def step_time_sweeps(read: Read) -> str:
    """The widest published pair of batches of each setup, with what is said of it."""
    sweeps = read("step_time").figures["sweeps"]
    wrong = sum(one["wrong"] for one in sweeps)
    everything = [f"all {len(sweeps)} pairs", "", "", "", "", f"{wrong} wrong"]
    return _table(
        ["model", "GPU", "batches", "measured", "predicted", "verdict"],
        [
            [
                one["trace"],
                one["gpu"],
                f"{one['small']} to {one['large']}",
                f"{one['measured']:.2f}×",
                f"{one['predicted']:.2f}× ({one['low']:.2f} to {one['high']:.2f})",
                one["verdict"] + (", **wrong**" if one["wrong"] else ""),
            ]
            for one in sweeps
            if one["widest"]
        ]
        + [everything],
    )


def step_time_ranges(read: Read) -> str:
    """How many published steps lie within the range of their prediction."""
    return _table(
        ["published steps", "rows", "within their range"],
        [
            [one["group"], f"{one['rows']:,}", _percent(one["within"] / one["rows"])]
            for one in read("step_time").figures["coverage"]
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
                    f"{_ms(figures[took]['median'])}, at worst {_ms(figures[took]['worst'])}"
                    for took in ("queued_to_started_seconds", "asked_to_cancelled_seconds")
                ),
                f"{1e6 * cost['median']:,.0f} µs",
            ]
        )
    return _table(
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
        kinds = {one["kind"]: one for one in figures["answers"]}
        lost = sum(one["lost"] + one["doubled"] for one in figures["documents"])
        sent = sum(one["sent"] for one in figures["documents"])
        rows.append(
            [
                f"{figures['clients']} for {figures['seconds']:.0f} s, {figures['database']}"
                f"{_load(result)}",
                f"{sum(one['requests'] for one in kinds.values()):,}",
                *(
                    f"{_ms(kinds[kind]['median_seconds'])}, "
                    f"{_ms(kinds[kind]['percentile_99_seconds'])}"
                    for kind in ("list", "analysis pushed")
                ),
                str(figures["errors"]),
                f"{lost} of {sent:,}",
            ]
        )
    headings = ["clients", "requests", "list: median, p99", "push: median, p99", "errors"]
    return _table([*headings, "lost or doubled"], rows)


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


BLOCKS: dict[str, Callable[[Read], str]] = {
    "accuracy": accuracy,
    "published": published,
    "others": others,
    "asked": asked,
    "interval": interval,
    "cpu": cpu,
    "search": search,
    "pages": pages,
    "answers": answers,
    "recording": recording,
    "curve": curve,
    "scripts": scripts,
    "step-time": step_time,
    "step-time-ratios": step_time_ratios,
    "step-time-learned": step_time_learned,
    "step-time-sweeps": step_time_sweeps,
    "step-time-ranges": step_time_ranges,
    "workers": workers,
    "clients": clients,
    "machine": machine,
}
"""The text between ``<!-- results NAME -->`` and ``<!-- end -->`` in a document."""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, rule, *rows])


def _load(result: Result) -> str:
    """The load of the machine, where it matters most."""
    return f" (load {result.machine.load:.0f} before, {result.machine.cores} cores)"


def _percent(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:.1f}%"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"


def _in(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**30:.2f} GiB"
    return f"{value:,.2f} {unit}" if unit in ("GiB", "GB") else f"{value:,.0f} {unit}"


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
