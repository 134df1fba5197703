"""Batches of prompts with answers, for methods that compare or score these."""

from __future__ import annotations

import torch

from ...core.choices import Method
from ...interface.workload import Workload
from .batch import Batch
from .text import padded


def answers(workload: Workload, batch_size: int) -> Batch:
    """Prompts with their answers in one text each, padded at the end.

    Of a pair, all first ones come before all second ones. KTO has other texts beside its own.
    """
    texts = padded(workload, batch_size * workload.method.texts_per_sample)
    reference = {"reference": torch.zeros(len(texts["input_ids"]))}
    batch = texts | (reference if workload.precomputed_reference else {})
    if workload.method is Method.GRPO:
        return batch | {"advantages": torch.zeros(batch_size)}
    if workload.method is Method.PPO:
        answered = workload.completion_length or (workload.sequence_length or 0) - 1
        scored = ("before", "advantages", "returns", "values")
        return batch | {name: torch.zeros(batch_size, answered) for name in scored}
    if workload.method is not Method.KTO:
        return batch
    return batch | {f"KL_{name}": tensor.clone() for name, tensor in batch.items()}
