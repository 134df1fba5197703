"""When an optimizer renews its projections or preconditioners, and what is known of such a step."""

from __future__ import annotations

from ...choices import Optimizer
from ...tracing.decompositions import ASSUMED
from ...workload import Workload

_EARLY = 2

_SVD = ("an SVD of each projected gradient", "every 200 steps")
_DONE_BY = {
    Optimizer.GALORE: _SVD,
    Optimizer.GALORE_8BIT: _SVD,
    Optimizer.SOAP: ("a QR decomposition for each side of each matrix", "every 10 steps"),
}
"""What a refresh decomposes, and when."""


def is_due(step: int, every: int) -> bool:
    """Whether a step renews them.

    Packages do so in the first step and every so many steps. Here the second does so too: it is
    the first step with all of the optimizer's state, so that a trial or a trace of two steps has
    met the step that needs most.

    Args:
        step: Counted from 0.
        every: Steps from one refresh to the next.
    """
    return step < _EARLY or step % every == 0


def refresh_caveats(workload: Workload) -> list[str]:
    """What is assumed of decompositions on a GPU."""
    if workload.optimizer not in _DONE_BY:
        return []
    done, when = _DONE_BY[workload.optimizer]
    return [f"The peak includes {done}, which this optimizer makes {when}. {ASSUMED}"]
