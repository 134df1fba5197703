"""Memory of generating and scoring completions beside the update, and which of them decides."""

from __future__ import annotations

from ..core.sizes import gib
from ..interface.workload import Workload
from ..step.rollouts import METRICS, SCORING
from ..tracing.trace import Trace, is_generating


def rollout_caveats(workload: Workload, step: Trace) -> list[str]:
    """The peaks of generation and update, and which of them is higher.

    Args:
        workload: It may generate what it learns from.
        step: The trace of a batch that fits.
    """
    peaks = step.peak_by_phase()
    generating = max((peaks.pop(name) for name in list(peaks) if is_generating(name)), default=0)
    scoring = max(peaks.pop(SCORING, 0), peaks.pop(METRICS, 0))
    if not workload.method.generates or not generating:
        return []
    updating = max(peaks.values())
    count = step.batch_size * workload.steps_per_generation
    phases = {"generation": generating, "scoring": scoring, "the update": updating}
    needed = {name: peak for name, peak in phases.items() if peak}
    among = "Of generation, scoring and update" if scoring else "Of generation and update"
    scored = f" scoring them at {gib(scoring)}," if scoring else ""
    return [
        f"{among}, {max(needed, key=lambda name: needed[name])} needs more memory: generating "
        f"{count:,} completions peaks at {gib(generating)},{scored} the update of "
        f"{step.batch_size:,} at {gib(updating)}. Step times are those of the update "
        "alone."
    ]
