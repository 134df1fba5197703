"""What becomes of the learning rate where an optimizer step sees more samples, or fewer."""

from __future__ import annotations

import math

from ..core.numbers import times, whole
from ..core.optimizers import Optimizer, Scaling
from ..interface.result import AnalysisResult


def learning_rate_advice(
    optimizer: Optimizer | None, before: int, after: int, *, is_retrained: bool = False
) -> str:
    """Advice on the learning rate, in one line.

    Args:
        optimizer: ``None`` for that of a script, which is not known.
        before: Samples of one optimizer step today.
        after: Samples of one then.
        is_retrained: Whether the optimizer changes, or what is trained.
    """
    if is_retrained:
        return "Learning rate: search for it anew."
    if before == after:
        return "Learning rate: as it is."
    rule = None if optimizer is None else optimizer.spec.scaling
    ratio = after / before
    if rule is None:
        name = "this optimizer" if optimizer is None else optimizer.label.partition(",")[0]
        return f"Learning rate: search for it anew; no rule is established for {name}."
    factor = times(ratio if rule is Scaling.LINEAR else math.sqrt(ratio))
    return f"Learning rate: start from {factor} yours, by the {rule.value}."


def global_batches(result: AnalysisResult) -> tuple[int, int] | None:
    """Samples of one optimizer step: today, and at the recommended batch.

    ``None`` without a current batch, and for a script, of which the GPUs are not known.
    """
    current, workload = result.current_batch_size, result.workload
    if current is None or workload is None:
        return None
    if result.global_batch is not None:
        return result.global_batch.size, result.global_batch.kept_size
    shared = workload.gradient_accumulation * workload.data_parallel
    return current * shared, result.recommended_batch_size * shared


def about_global_batch(result: AnalysisResult) -> str:
    """The effect of the recommended batch on global batch and learning rate, as text.

    Empty where the answer changes nothing.
    """
    batches = global_batches(result)
    if batches is None or result.workload is None:
        return ""
    before, after = batches
    if before == after:
        return ""
    batch = f"Raises the global batch from {whole(before)} to {whole(after)}."
    if after < before:
        batch = (
            f"Lowers the global batch from {whole(before)} to {whole(after)}, which gradient "
            "checkpointing or accumulation may keep."
        )
    return f"{batch} {learning_rate_advice(result.workload.optimizer, before, after)}"
