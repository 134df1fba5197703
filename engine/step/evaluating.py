"""Evaluation between training steps, as the loop of Hugging Face's Trainer does it.

Beside weights and optimizer state, a forward pass without gradients is on the GPU and, with
``compute_metrics``, what all batches so far have returned: every output but the loss and
``past_key_values``, and the labels. Each batch is concatenated to them, so that old and new copy
are there together. Sources: ``Trainer.evaluation_loop``, ``Trainer.prediction_step`` and
``EvalLoopContainer`` in transformers 5.23; ``convert_outputs_to_fp32`` in accelerate 1.15, which
copies what an autocast model returns. Where it generates, as ``Seq2SeqTrainer.prediction_step``
does, tokens are kept in place of logits, and the forward pass for the loss comes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..interface.workload import Workload
from .batches import Batch, make_batch
from .generating import Generation
from .losses import returns_its_loss
from .training import TrainingState, inputs_on_device

_HALF = (torch.bfloat16, torch.float16)
_LABELS = ("start_positions", "end_positions")
_IGNORED = ["past_key_values"]
"""Outputs that the Trainer does not keep where a config lists none."""

_Kept = list[list[torch.Tensor]]
"""Losses, logits and labels; what stands in one list is concatenated together."""


@dataclass(frozen=True)
class Evaluation:
    """The batches of an evaluation that matter for memory: the first and the last.

    Attributes:
        batch: Inputs, on the host.
        has_outputs: Whether the model returns the loss among others.
        keeps_logits: Whether a metric is computed from those at the end.
        rows_before: Samples whose logits are on the GPU when the last batch comes.
        new_tokens: Tokens generated for each sample; 0 where none are.
        beams: Beams of each of those texts.
    """

    batch: Batch
    has_outputs: bool
    keeps_logits: bool
    rows_before: int
    new_tokens: int = 0
    beams: int = 1

    def with_batch(self, batch: Batch) -> Evaluation:
        """The same with another copy of its batch, such as on fake tensors."""
        return replace(self, batch=batch)


def evaluation_of(workload: Workload) -> Evaluation | None:
    """The evaluation of a workload; ``None`` if it has none."""
    if workload.eval_batch_size is None:
        return None
    rows = rows_before_last(
        workload.eval_batch_size, workload.eval_samples or 0, workload.eval_accumulation_steps
    )
    size = min(workload.eval_batch_size, workload.eval_samples or workload.eval_batch_size)
    return Evaluation(
        make_batch(workload, size),
        returns_its_loss(workload.task),
        workload.eval_samples is not None,
        rows,
        workload.eval_new_tokens or 0,
        workload.eval_num_beams,
    )


def rows_before_last(batch_size: int, samples: int, accumulation: int | None) -> int:
    """Samples whose logits are on the GPU when the last full batch comes.

    The last batch may be a smaller one. Then the forward pass of the full one before it is taken
    to find a few samples more, so that the concatenation at the end is right.

    Args:
        batch_size: Batch size of the evaluation.
        samples: Number of samples in the evaluation set.
        accumulation: Number of batches after which logits move to the host; ``None`` for never.
    """
    batches = -(-samples // batch_size)
    if accumulation is not None and accumulation < batches:
        return (accumulation - 1) * batch_size
    return max(0, samples - batch_size)


def evaluate(training: TrainingState, evaluation: Evaluation) -> None:
    """Evaluate: the first batch and, with the logits of all others kept, the last."""
    was_training = training.model.training
    training.model.eval()
    inputs, kept = _predict(training, evaluation)  # its inputs go when those of the next come
    if evaluation.keeps_logits and evaluation.rows_before > 0:
        last, rows = kept, evaluation.rows_before
        training.phase = "outputs"
        if rows > len(last[0][0]):
            kept = [[one.new_empty((rows, *one.shape[1:])) for one in part] for part in last]
        inputs, last = _predict(training, evaluation)
        training.phase = "outputs"
        for part, more in enumerate(last):
            kept[part] = _concatenated(kept[part], more)
    del inputs
    training.model.train(was_training)
    training.phase = "idle"


def _predict(training: TrainingState, evaluation: Evaluation) -> tuple[Batch, _Kept]:
    """The forward pass for one batch: its inputs, and what is kept of it."""
    training.phase = "inputs"
    inputs = inputs_on_device(training, evaluation.batch)
    written = [_written(training, evaluation, inputs)] if evaluation.new_tokens else []
    training.phase = "evaluation"
    with torch.no_grad(), training.forward_context():
        if not evaluation.has_outputs:
            return inputs, [[training.loss(training.model, inputs)]]
        outputs: Any = training.model(**inputs)
    outputs = {name: _as_returned(training, value) for name, value in outputs.items()}
    size = len(next(iter(inputs.values())))
    losses = [outputs["loss"][0].mean().repeat(size)]
    if not evaluation.keeps_logits:
        return inputs, [losses]
    labels = [one for name, one in inputs.items() if "label" in name or name in _LABELS]
    if written:
        return inputs, [losses, written, labels]
    ignored = ["loss", *getattr(training.model.config, "keys_to_ignore_at_inference", _IGNORED)]
    logits = [leaf for name, found in outputs.items() if name not in ignored for leaf in found]
    return inputs, [losses, logits, labels]


def _written(training: TrainingState, evaluation: Evaluation, inputs: Batch) -> torch.Tensor:
    """Generate texts for the inputs; returns their tokens."""
    generation = Generation(
        training, inputs, evaluation.new_tokens, beams=evaluation.beams, by_trainer=True
    )
    for move in generation.moves:
        move()
    length = generation.prompt_length + evaluation.new_tokens
    count = len(next(iter(inputs.values())))
    return torch.zeros((count, length), dtype=torch.int64, device=training.device)


def _as_returned(training: TrainingState, output: Any) -> list[torch.Tensor]:
    """The tensors of one output, as accelerate returns them: in fp32 where autocast ran."""
    tensors = [one for one in tree_leaves(output) if isinstance(one, torch.Tensor)]
    if training.autocast is None:
        return tensors
    return [one.float() if one.dtype in _HALF else one for one in tensors]


def _concatenated(kept: Sequence[torch.Tensor], more: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.cat(pair) for pair in zip(kept, more, strict=True)]
