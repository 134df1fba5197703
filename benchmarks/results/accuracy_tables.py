"""Tables of how far off predicted memory is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks import estimators, ways, xmem
from benchmarks.errors import Errors
from benchmarks.results.cells import Read, load, percent, table

_CPU = ("cpu", "cpu-gpt2")
"""GPT-2 needs more memory than the others at any batch size, so it has its own limit."""


def accuracy(read: Read) -> str:
    """Predicted vs. measured memory, with one row per kind of measurement."""
    summary, on_cpu = read("accuracy").figures["summary"], [read(name).figures for name in _CPU]
    verdicts = [
        f"{summary[wrong]} of {summary[all_of_them]}"
        for wrong, all_of_them in (("false_safe", "ran_out"), ("false_alarm", "ran"))
    ]
    real = Errors.of(one["error"] for checked in on_cpu for one in checked["comparisons"])
    fits = [fit for checked in on_cpu for fit in checked["fits"]]
    over = [fit["predicted"] for fit in fits if not fit["measured"]]
    under = [not fit["predicted"] for fit in fits if fit["measured"]]
    on_cpus = [f"{sum(over)} of {len(over)}", f"{sum(under)} of {len(under)}"]
    none = ["", ""]
    rows = [
        _errors_row("published GPU measurements, setup fully known", summary["known"], none),
        _errors_row("the same, nothing added for older software", summary["plain"], none),
        _errors_row("all published GPU measurements", summary["every"], verdicts),
        _errors_row("real steps on a CPU", asdict(real), on_cpus),
    ]
    times = read("step_time").figures["summary"]
    rows.append(_errors_row("published step times, the model not fitted", times["unseen"], none))
    headings = ["predicted vs.", "numbers", "median error", "95th percentile", "worst"]
    return table([*headings, "false safe", "false alarm"], rows)


def _errors_row(name: str, errors: dict[str, Any], verdicts: list[str]) -> list[str]:
    shares = [percent(errors[figure]) for figure in ("median", "percentile_95", "worst")]
    return [name, str(errors["compared"]), *shares, *verdicts]


def published(read: Read) -> str:
    return table(
        ["published measurement", "GPU", "counted", "measured", "predicted", "error"],
        [_published_row(one) for one in read("accuracy").figures["comparisons"]],
    )


def _published_row(one: dict[str, Any]) -> list[str]:
    known = one["measurement"]
    growth = "growth of " if known["growth_from"] is not None else ""
    star = "" if known["complete"] else " \\*"
    if one["fits"] is None:
        predicted, right = "not predicted", "-"
    else:
        predicted = _in(one["predicted"], known["unit"]) + ("" if one["fits"] else ", does not fit")
        right = "right" if one["fits"] is known["ran"] else "**wrong**"
    if one["error"] is not None:
        right = f"{100 * one['error']:+.1f}%"
    return [
        known["name"] + star,
        known["gpu"]["display_name"].removeprefix("NVIDIA "),
        f"{growth}{known['counted']}",
        _measured(known),
        predicted,
        right,
    ]


def _measured(known: dict[str, Any]) -> str:
    if known["published"] is None:
        return "ran" if known["ran"] else "out of memory"
    return _in(known["published"], known["unit"])


def _in(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**30:.2f} GiB"
    return f"{value:,.2f} {unit}" if unit in ("GiB", "GB") else f"{value:,.0f} {unit}"


def by_way(read: Read) -> str:
    """The checks of each way of training."""
    return table(ways.HEADINGS, ways.cells(read("accuracy").figures["comparisons"]))


def others(read: Read) -> str:
    """Our errors and verdicts beside those of the estimators that xMem was compared with."""
    found = read("accuracy").figures["xmem"]
    return table(xmem.HEADINGS, map(xmem.cells, found["scores"]))


def asked(read: Read) -> str:
    """Estimators that can be installed, on the same runs."""
    found = read("accuracy").figures["estimators"]
    return table(estimators.HEADINGS, map(estimators.cells, found))


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
    return table(headings, rows)


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


def scripts(read: Read) -> str:
    """Training scripts as people write them: what a prediction takes, and how far off it is."""
    result = read("real_code")
    headings = ["script", "about", "lines added", f"seconds{load(result)}", "on an A10"]
    return table(
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
