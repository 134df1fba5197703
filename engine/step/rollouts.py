"""Completions that GRPO's policy generates between two updates, as TRL does without vLLM.

Sources: ``GRPOTrainer._generate_single_turn`` and ``GRPOConfig`` (``steps_per_generation``) in TRL
1.16.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from ..choices import Rollout
from ..workload import Workload
from .batches.text import token_ids
from .generating import Generation
from .training import Training


@dataclass(frozen=True)
class Completions:
    """What is to be generated.

    Attributes:
        prompts: On the host, of shape (B, P).
        new_tokens: For each prompt.
    """

    prompts: torch.Tensor
    new_tokens: int

    def with_prompts(self, prompts: torch.Tensor) -> Completions:
        """The same with another copy of the prompts, such as on fake tensors."""
        return replace(self, prompts=prompts)


def completions_of(workload: Workload, batch_size: int) -> Completions | None:
    """What a workload generates on its GPU before it updates; ``None`` for nothing."""
    if not workload.method.generates or workload.rollout is not Rollout.GENERATE:
        return None
    length = workload.sequence_length or 0
    answer = workload.completion_length or length - 1
    prompts = token_ids(workload, batch_size * workload.steps_per_generation)
    return Completions(prompts[:, : length - answer].clone(), answer)


def roll_out(training: Training, completions: Completions) -> None:
    """Generate, without dropout and checkpointing, and keep nothing on the device."""
    was_training = training.model.training
    training.model.eval()
    policy = cast(Training, _Policy(training))
    for move in Generation(policy, completions.prompts, completions.new_tokens).moves:
        move()
    training.model.train(was_training)
    training.phase = "idle"


class _Policy:
    """A training, of which only the policy is asked."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.model: Any = training.model.policy
        self.device = training.device

    def forward_context(self) -> AbstractContextManager[Any]:
        return self._training.forward_context()

    @property
    def phase(self) -> str:
        return self._training.phase

    @phase.setter
    def phase(self, name: str) -> None:
        self._training.phase = name
