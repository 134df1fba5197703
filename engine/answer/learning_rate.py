"""The learning rate where an optimizer step sees more samples, or fewer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.numbers import times, whole
from ..core.optimizers import Optimizer, Scaling, scaling_of
from ..interface.result import AnalysisResult, OptimizerStep

KEPT = "Learning rate: as it is."
"""For an optimizer step that sees as many samples as before."""


def learning_rate_advice(
    optimizer: Optimizer | None, before: int, after: int, *, is_retrained: bool = False
) -> str:
    """Advice on the learning rate, in one line.

    Args:
        optimizer: ``None`` if it is not known.
        before: Samples of one optimizer step today.
        after: Samples of one then.
        is_retrained: Whether the optimizer changes, or what is trained.
    """
    if is_retrained:
        return "Learning rate: search for it anew."
    if optimizer is Optimizer.NONE and before != after:
        return "Learning rate: there is none, since no optimizer updates the weights."
    if optimizer is None:
        return _advice(None, "this optimizer", before, after)
    return _advice(optimizer.spec.scaling, optimizer.label.partition(",")[0], before, after)


def _advice(rule: Scaling | None, name: str, before: int, after: int) -> str:
    if before == after:
        return KEPT
    if rule is None:
        return f"Learning rate: search for it anew; no rule is established for {name}."
    ratio = after / before
    factor = times(ratio if rule is Scaling.LINEAR else math.sqrt(ratio))
    return f"Learning rate: start from {factor} yours, by the {rule.value}."


def advice_for_classes(classes: Sequence[str], before: int, after: int) -> str:
    """The same for a script, by the classes of its optimizers."""
    rules = {scaling_of(name) for name in classes}
    rule = rules.pop() if len(rules) == 1 else None
    return _advice(rule, " and ".join(classes) or "this optimizer", before, after)


def global_batches(result: AnalysisResult) -> tuple[int, int] | None:
    """Samples of one optimizer step: today, and at the recommended batch.

    ``None`` without a current batch, and for a script that was not traced.
    """
    current, recommended = result.current_batch_size, result.recommended_batch_size
    if current is None:
        return None
    if result.global_batch is not None:
        return result.global_batch.size, result.global_batch.kept_size
    if (step := result.optimizer_step) is not None:
        before = current * step.current_micro_batches * step.gpus
        return before, recommended * step.recommended_micro_batches * step.gpus
    if result.workload is None:
        return None
    shared = result.workload.gradient_accumulation * result.workload.data_parallel
    return current * shared, recommended * shared


def about_global_batch(result: AnalysisResult) -> str:
    """The effect of the recommended batch on global batch and learning rate, as text.

    Empty where the answer changes nothing.
    """
    batches = global_batches(result)
    if batches is None or batches[0] == batches[1]:
        return ""
    before, after = batches
    verb = "Raises" if after > before else "Lowers"
    change = f"{verb} the global batch from {whole(before)} to {whole(after)}"
    if result.workload is not None:
        if after < before:
            change += ", which gradient checkpointing or accumulation may keep"
        return f"{change}. {learning_rate_advice(result.workload.optimizer, before, after)}"
    step = result.optimizer_step
    if step is None:
        return f"{change}."
    kept = _kept_by(step, before, result.recommended_batch_size)
    return f"{change}{kept}. {advice_for_classes(step.optimizers, before, after)}"


def _kept_by(step: OptimizerStep, before: int, batch_size: int) -> str:
    """How many micro-batches keep a script's global batch; empty if none do."""
    count, rest = divmod(before, batch_size * step.gpus)
    if rest or not count:
        return ""
    batches = "micro-batch" if count == 1 else "micro-batches"
    return f", which {whole(count)} {batches} of {whole(batch_size)} would keep"
