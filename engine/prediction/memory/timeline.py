"""Memory over a training step, and the largest tensors at its peak, for a chart and a table."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from operator import itemgetter

from ...allocator.caching import FREE
from ...interface.result import LargeTensor, TimelinePoint
from ...tracing.trace import Category, Trace


def timeline(trace: Trace, points: int = 200) -> list[TimelinePoint]:
    """The live bytes over the last step, by category.

    The step is divided into stretches of equal length, each shown by its highest point, so that no
    spike is lost and the peak is exact. The first point is the start of the step, the last its end.
    Bytes are those of the tensors, which the caching allocator rounds up.

    Args:
        trace: A trace of at least one step.
        points: The maximum number of points; at least 3.
    """
    events = trace.events[trace.last_step :]
    if not events:
        return []
    live = _live_at_start(trace)
    shown = _highest_in_each(_totals(trace), points - 2) | {len(events)}
    drawn = [TimelinePoint(0.0, _phase(trace, 0), _by_name(live))]
    for number, (kind, tensor) in enumerate(events, 1):
        live[trace.categories[tensor]] += _change(trace, kind, tensor)
        if number in shown:
            at = round(number / len(events), 5)
            drawn.append(TimelinePoint(at, _phase(trace, number - 1), _by_name(live)))
    return drawn


def largest_tensors(trace: Trace, count: int = 10) -> list[LargeTensor]:
    """The largest tensors alive at the peak of the last step, largest first.

    Args:
        trace: A trace of at least one step.
        count: The maximum number of tensors.
    """
    largest = sorted(alive_at_peak(trace), key=trace.sizes.__getitem__, reverse=True)[:count]
    return [
        LargeTensor(
            size_bytes=trace.sizes[tensor],
            category=trace.categories[tensor].value,
            module=trace.modules[tensor],
            operation=trace.makers[tensor],
        )
        for tensor in largest
    ]


def alive_at_peak(trace: Trace) -> list[int]:
    """The tensors alive at the peak of the last step, in the order in which they were made."""
    live: dict[int, None] = {}
    for kind, tensor in trace.events[: trace.last_step + _peak(trace) + 1]:
        if kind == FREE:
            del live[tensor]
        else:
            live[tensor] = None
    return list(live)


def peak_phase(trace: Trace) -> str:
    """The phase of the last step in which its peak is."""
    return _phase(trace, _peak(trace))


def _peak(trace: Trace) -> int:
    """The event after which most bytes are alive, by its index within the last step; -1 if none."""
    totals = _totals(trace)
    return max(range(len(totals)), key=totals.__getitem__, default=-1)


def _live_at_start(trace: Trace) -> dict[Category, int]:
    """The live bytes before the last step, by category."""
    live = dict.fromkeys(Category, 0)
    for kind, tensor in trace.events[: trace.last_step]:
        live[trace.categories[tensor]] += _change(trace, kind, tensor)
    return live


def _totals(trace: Trace) -> list[int]:
    """The live bytes after each event of the last step, minus those at its start."""
    changes = (_change(trace, kind, tensor) for kind, tensor in trace.events[trace.last_step :])
    return list(accumulate(changes))


def _highest_in_each(totals: list[int], stretches: int) -> set[int]:
    """The number of the event (from 1) with most bytes in each stretch; the first if equal."""
    bounds = [len(totals) * part // stretches for part in range(stretches + 1)]
    numbered = list(enumerate(totals, 1))
    return {
        max(numbered[begin:end], key=itemgetter(1))[0]
        for begin, end in pairwise(bounds)
        if begin < end
    }


def _phase(trace: Trace, index: int) -> str:
    """The phase of the last step at an event, given its index within the step."""
    found = bisect_right(trace.phases, trace.last_step + index, key=itemgetter(0)) - 1
    return trace.phases[found][1] if found >= 0 else ""


def _change(trace: Trace, kind: int, tensor: int) -> int:
    return -trace.sizes[tensor] if kind == FREE else trace.sizes[tensor]


def _by_name(live: dict[Category, int]) -> dict[str, int]:
    return {category.value: size for category, size in live.items()}
