"""Work of a step for one core of the host, in launches.

Python, autograd and the driver take longer for some operations than for others. A launch is the
mean over the operations of a training step of BERT in fp32, so that the launches of a step times
the launch time of its host is the time for which one core is busy with it.
"""

from __future__ import annotations

from enum import IntEnum

from ...tracing.trace import TRANSPOSE, Operation
from .kernels import Kind, kind_of

LAUNCH_RANGE = 15e-6, 60e-6
"""Seconds that hosts take for a launch, where nothing is known of them: published sweeps of fast
hosts take 17 to 24 µs, the virtual machine of our H100 30 to 59 µs."""


class Launch(IntEnum):
    """Kinds of launches."""

    MODULE = 0
    FUNCTION = 1
    CAST = 2
    BACKWARD = 3
    BACKWARD_CAST = 4
    OPTIMIZER = 5


OF_BERT = {
    Launch.MODULE: 116,
    Launch.FUNCTION: 114,
    Launch.CAST: 1,
    Launch.BACKWARD: 354,
    Launch.OPTIMIZER: 2,
}
"""The operations of a training step of BERT base in fp32 with AdamW."""

_CASTS = ("aten._to_copy", "aten.copy_", TRANSPOSE)
_FUNCTIONS = (
    Kind.BATCHED_PRODUCT,
    Kind.SOFTMAX,
    Kind.ELEMENTWISE,
    Kind.UNROLLED,
    Kind.REDUCTION,
    Kind.COPY,
)


def launch_of(operation: Operation) -> Launch:
    """The kind of an operation's launch.

    Linear layers, convolutions, norms, attention and lookups are modules, whose calls and hooks
    are Python; the functions between them are not. Autograd's engine runs a backward pass
    without Python, and casts to another number format are made within other operations.
    """
    if operation.phase == "optimizer":
        return Launch.OPTIMIZER
    casts = operation.name in _CASTS
    if operation.phase == "backward":
        return Launch.BACKWARD_CAST if casts else Launch.BACKWARD
    if casts:
        return Launch.CAST
    return Launch.FUNCTION if kind_of(operation) in _FUNCTIONS else Launch.MODULE
