"""What generating GRPO's completions needs beside its update, and which of them decides."""

from __future__ import annotations

from ..tracing.trace import Trace
from ..workload import Workload

_PHASES = ("generation", "cache")


def rollout_caveats(workload: Workload, step: Trace) -> list[str]:
    """The peaks of generation and update, and which of them is higher.

    Args:
        workload: It may generate what it learns from.
        step: The trace of a batch that fits.
    """
    peaks = step.peak_by_phase()
    generating = max((peaks.pop(name, 0) for name in _PHASES), default=0)
    if not workload.method.generates or not generating:
        return []
    updating = max(peaks.values())
    more = "generation" if generating > updating else "the update"
    count = step.batch_size * workload.steps_per_generation
    return [
        f"Of generation and update, {more} needs more memory: generating {count:,} completions "
        f"peaks at {generating / 2**30:,.2f} GiB, the update of {step.batch_size:,} at "
        f"{updating / 2**30:,.2f} GiB. Step times are those of the update alone."
    ]
