"""Steps that differ from one to the next: the one that was traced does not stand for them all."""

from __future__ import annotations

from ...tracing.trace import Trace

STEPS = 3
"""Gradients may live on into the next step, so the third is the first that starts like all later
ones."""

_ALIKE_BYTES = 4096
"""Bytes by which a step may differ from the one before: a script may keep some numbers of each."""


def unlike(traced: Trace, later: Trace) -> list[str]:
    """Caveat where a step needs other memory than the traced one before it.

    Args:
        traced: Ends with step :data:`STEPS`.
        later: Ends with the next one.
    """
    before, after = traced.peak_of_last_step(), later.peak_of_last_step()
    if abs(after - before) <= _ALIKE_BYTES:
        return []
    return [
        f"Steps differ: at batch {traced.batch_size:,} the tensors of step {STEPS} take "
        f"{before:,} bytes and those of step {STEPS + 1} {after:,}, as where batches have "
        "their own lengths, some steps do more than others, or a script keeps what it computes. "
        "Let its first steps be the largest."
    ]
