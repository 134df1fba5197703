"""Steps in which an optimizer renews its projections or preconditioners, and caveats about them."""

from __future__ import annotations

from ...interface.workload import Workload
from ...tracing.decompositions import ASSUMED

_EARLY = 2


def is_due(step: int, every: int) -> bool:
    """Whether a step renews them.

    Packages do so in the first step and at regular intervals. Here the second does so too: it is
    the first step with all of the optimizer's state, so that a trial or a trace of two steps has
    met the step that needs most.

    Args:
        step: Counted from 0.
        every: Steps from one refresh to the next.
    """
    return step < _EARLY or step % every == 0


def refresh_caveats(workload: Workload) -> list[str]:
    """Caveats about decompositions on a GPU."""
    refresh = workload.optimizer.spec.refresh
    if refresh is None:
        return []
    return [
        f"The peak includes {refresh.work}, which this optimizer makes {refresh.interval}. "
        f"{ASSUMED}"
    ]
