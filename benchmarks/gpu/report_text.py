"""The report as plain text, for a terminal or a commit message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.gpu.report import (
    GROUPS,
    MEMORY,
    Errors,
    Limit,
    comparisons,
    errors,
    half_of,
    in_group,
    limits,
    truth,
    verdicts,
    within,
)
from benchmarks.gpu.results import Results, Search, format_capacity
from engine.gpus import GPUS, catalogue_name
from engine.prediction.timing.intervals import Counted

_NAMES = {
    Counted.PEAK_ALLOCATED: "peak allocated",
    Counted.PEAK_RESERVED: "peak reserved",
    Counted.DEVICE_USED: "device used",
    Counted.STEP_SECONDS: "step time",
}
_NONE = "-"


def report(results: Results) -> str:
    sections = [
        _head(results),
        _errors(results),
        _each_workload(results),
        _verdicts(results),
        _limits(results),
        _searches(results),
        _fixed_costs(results),
        _missing(results),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with aligned columns: the first to the left, the others to the right."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def share(value: float | None, sign: str = "") -> str:
    return _NONE if value is None else f"{100 * value:{sign}.2f}%"


def error_cells(found: Errors) -> list[str]:
    shares = (found.median, found.percentile_95, found.worst)
    return [f"{found.count:,}", *(share(one) for one in shares), f"{found.too_low:,}"]


ERROR_HEADINGS = ("numbers", "median", "95th pct", "worst", "too low")


def _head(results: Results) -> str:
    device, ran_on = results.device.facts, results.device.ran_on
    versions = [
        f"torch {ran_on.torch}",
        f"transformers {ran_on.transformers}",
        *([f"CUDA {ran_on.cuda}"] if ran_on.cuda else []),
        *([f"cuDNN {ran_on.cudnn}"] if ran_on.cudnn else []),
        *([f"driver {ran_on.driver}"] if ran_on.driver else []),
    ]
    runs = ", ".join(f"{when} ({seconds:.0f} s)" for when, seconds in results.runs)
    lines = [
        f"{device.name}, {device.total_bytes / 2**30:.2f} GiB, {', '.join(versions)}",
        f"Runs: {runs}; commits: {', '.join(results.commits)}",
        f"{len(results.rows):,} trials (measured) of "
        f"{len({row.workload for row in results.rows})} workloads.",
    ]
    if ran_on.clock_mhz and ran_on.largest_clock_mhz:
        lines.append(
            f"Clock before the first step {ran_on.clock_mhz:,} MHz of "
            f"{ran_on.largest_clock_mhz:,} MHz, power limit {ran_on.power_limit_watts} W."
        )
    if device.kind != "cuda":
        lines.append(
            "NOT A GPU: on a CPU every live byte is counted, so memory is predicted exactly. This "
            "shows that the benchmark runs, not how well it predicts a GPU."
        )
    return "\n".join(lines)


def _errors(results: Results) -> str:
    rows = []
    for counted in (*MEMORY, Counted.STEP_SECONDS):
        for group in GROUPS:
            found = comparisons(in_group(group, results.rows), counted)
            if found:
                cells = error_cells(errors(one.error for one in found))
                rows.append([_NAMES[counted], str(group), *cells])
    if not rows:
        return "No predictions yet: python -m benchmarks.gpu predict FILE"
    title = "Prediction errors: predicted over measured, minus 1, without sign"
    text = table(("number", "workloads", *ERROR_HEADINGS), rows)
    gpu = results.device.facts
    if gpu.kind == "cuda" and catalogue_name(gpu.name) is None:
        text += f"\nNo step time is predicted: {gpu.name} is not in the catalogue (engine/gpus/)."
    unknown = sum(row.predicted is None for row in results.rows)
    if unknown:
        text += f"\n{unknown:,} trials have no prediction; the command predict FILE adds them."
    return f"{title}\n{text}"


def _each_workload(results: Results) -> str:
    """The errors of each workload, with their sign."""
    rows = []
    for name in dict.fromkeys(row.workload for row in results.rows):
        of_it = [row for row in results.rows if row.workload == name]
        found = [[one.error for one in comparisons(of_it, counted)] for counted in _NAMES]
        if any(found):
            rows.append([name, half_of(name) or _NONE, *map(_span, found)])
    if not rows:
        return ""
    title = "Errors by workload, lowest to highest; negative if the prediction was too low"
    return f"{title}\n{table(('workload', 'half', *_NAMES.values()), rows)}"


def _span(signed: Sequence[float]) -> str:
    if not signed:
        return _NONE
    return f"{100 * min(signed):+.1f} to {100 * max(signed):+.1f}%"


def _verdicts(results: Results) -> str:
    rows = []
    for group in GROUPS:
        found = verdicts(in_group(group, results.rows), results.device.facts.total_bytes)
        if not found.promised + found.refused:
            continue
        rows.append(
            [
                str(group),
                *_out_of(found.false_safe, found.promised, found.false_safe_rate),
                *_out_of(found.false_sure, found.sure, found.false_sure_rate),
                *_out_of(found.false_refuse, found.refused, found.false_refuse_rate),
            ]
        )
    if not rows:
        return ""
    headings = ("workloads", "false safe", "rate", "sure*", "rate", "false refuse", "rate")
    return (
        "Verdicts: predicted to fit but did not (false safe), predicted not to fit but did (false "
        "refuse)\n"
        + table(headings, rows)
        + "\n* predicted to fit even at the high end of the interval, but did not\n"
        "Most of these batches are right at a limit, where predictions are wrong most easily."
    )


def _out_of(wrong: int, total: int, rate: float | None) -> tuple[str, str]:
    return f"{wrong:,} of {total:,}", share(rate)


def _limits(results: Results) -> str:
    found = limits(results)
    if not found:
        return ""
    each = table(
        ("workload", "capacity", "certified", "predicted", "error"),
        (
            [
                one.workload,
                format_capacity(one.limit_bytes),
                f"{one.certified:,}",
                _NONE if one.predicted is None else f"{one.predicted:,}",
                share(one.error, "+"),
            ]
            for one in found
        ),
    )
    return (
        "Largest batch: certified (it fits, the next one does not, both measured), and predicted\n"
        f"{each}\n\n{_limit_summary(found)}"
    )


def _limit_summary(found: Sequence[Limit]) -> str:
    rows = []
    for group in GROUPS:
        of_it = [one for one in found if within(group, one.workload) and one.predicted is not None]
        if of_it:
            exact = sum(one.predicted == one.certified for one in of_it)
            cells = error_cells(errors(one.error for one in of_it if one.error is not None))
            rows.append([str(group), *cells, f"{exact:,} of {len(of_it):,}"])
    return table(("error of the largest batch", *ERROR_HEADINGS, "exact"), rows)


def _searches(results: Results) -> str:
    if not results.searches:
        return ""
    rows = [
        [
            search.tool,
            search.workload,
            format_capacity(search.limit_bytes),
            "not installed" if search.version is None else search.version or _NONE,
            _NONE if search.trials is None else f"{search.trials:,}",
            _NONE if search.seconds is None else f"{search.seconds:,.1f} s",
            _NONE if search.answer is None else f"{search.answer:,}",
            _judged(search, truth(results, search)),
        ]
        for search in results.searches
    ]
    headings = ("search", "workload", "capacity", "version", "trials", "time", "answer", "true?")
    return (
        "Searches for the largest batch (measured)\n"
        + table(headings, rows)
        + "\nMemoryMark's time includes the prediction and a fresh process for each trial; the "
        "other tools try all\nbatches in one process, whose start and imports are not counted."
    )


def _judged(search: Search, largest: int | None) -> str:
    if search.answer is None:
        return _NONE
    if largest is None:
        return "not certified"
    if search.answer == largest:
        return "yes"
    if search.answer > largest:
        return f"no, {search.answer - largest:,} too many"
    return f"no, {search.answer / largest:.0%} of it"


def _fixed_costs(results: Results) -> str:
    costs = results.device.fixed_costs
    if not costs:
        return ""
    mib = 2**20
    rows = [
        [
            cost.after,
            f"{cost.device_used_bytes / mib:,.1f}",
            f"{cost.reserved_bytes / mib:,.1f}",
            f"{cost.outside_bytes / mib:,.1f}",
            f"{cost.allocated_bytes / mib:,.1f}",
            f"{(cost.peak_allocated_bytes - cost.tensor_bytes) / mib:,.1f}",
        ]
        for cost in costs
    ]
    headings = ("after (MiB)", "device used", "reserved", "outside", "kept", "peak - tensors")
    known = GPUS.get(catalogue_name(results.device.facts.name) or "")
    compared = f"The engine measures {results.device.facts.context_bytes / mib:,.1f} MiB outside"
    if known:
        compared += f"; the catalogue has {known.context_bytes / mib:,.1f} MiB"
    return (
        "Fixed costs of a process (measured, one kind of work after another)\n"
        + table(headings, rows)
        + "\noutside: context and libraries, outside the caching allocator; kept: workspaces that "
        f"stay allocated.\n{compared}."
    )


def _missing(results: Results) -> str:
    lines = [f"Failed: {item}: {why}" for item, why in results.failures.items()]
    if results.left_out:
        lines.append(f"Left out for lack of time: {'; '.join(results.left_out)}.")
    return "\n".join(lines)
