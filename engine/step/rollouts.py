"""Completions that a policy generates between two updates, as TRL does without vLLM.

Sources: ``GRPOTrainer._generate_single_turn`` and ``GRPOConfig`` (``steps_per_generation``) in TRL
1.16; PPO's in :mod:`.ppo`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.utils._pytree import tree_map

from ..core.choices import Method, Rollout
from ..interface.workload import Workload
from .batches import Batch
from .batches.text import padded, token_ids
from .generating import Generation
from .losses import unwrapped
from .ppo import TEMPERATURE, ActorCritic
from .training import TrainingState

SCORING, METRICS = "scoring", "metrics"
"""The phases in which PPO's models read what was generated, and the metrics of an update are
computed."""


@dataclass(frozen=True)
class Completions:
    """Texts to generate.

    Attributes:
        prompts: Token ids on the host, of shape (B, P).
        new_tokens: Tokens to generate for each prompt.
        texts: Prompts with what was generated, on the host, to be scored; empty where nothing is.
    """

    prompts: torch.Tensor
    new_tokens: int
    texts: Batch = field(default_factory=dict)

    def with_tensors(self, given: Callable[[torch.Tensor], torch.Tensor]) -> Completions:
        """The same with other copies of its tensors, such as on fake ones."""
        return replace(self, prompts=given(self.prompts), texts=tree_map(given, self.texts))


def completions_of(workload: Workload, batch_size: int) -> Completions | None:
    """Texts that a workload generates on its GPU before it updates; ``None`` for none."""
    if not workload.method.generates or workload.rollout is not Rollout.GENERATE:
        return None
    length = workload.sequence_length or 0
    answer = workload.completion_length or length - 1
    count = batch_size * workload.steps_per_generation
    prompts = token_ids(workload, count)[:, : length - answer].clone()
    scores_them = workload.method is Method.PPO
    return Completions(prompts, answer, padded(workload, count) if scores_them else {})


def roll_out(
    training: TrainingState,
    completions: Completions,
    while_generating: AbstractContextManager[None] | None = None,
) -> None:
    """Generate, without dropout and checkpointing; PPO scores what was generated.

    Nothing is kept on the device but what that says.

    Args:
        training: Its model generates.
        completions: Texts to generate.
        while_generating: Entered for as long as text is generated, and left before it is scored.
    """
    model: Any = unwrapped(training.model)
    was_training = model.training
    if isinstance(model, ActorCritic):
        training.phase = METRICS
        model.end_update()
    model.eval()
    policy = cast(TrainingState, _Policy(training))
    scores = isinstance(model, ActorCritic)
    generation = Generation(
        policy,
        {"input_ids": completions.prompts},
        completions.new_tokens,
        temperature=TEMPERATURE if scores else None,
    )
    with while_generating or nullcontext():
        for move in generation.moves:
            move()
    if scores:
        training.phase = SCORING
        texts = {name: one.to(training.device) for name, one in completions.texts.items()}
        model.score(texts, generation.scores)
    model.train(was_training)
    training.phase = "idle"


class _Policy:
    """A training state of which only the policy generates."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        model: Any = unwrapped(training.model)
        self.model: Any = model.policy
        self._scores = isinstance(model, ActorCritic)
        self.device = training.device

    def forward_context(self) -> AbstractContextManager[Any]:
        if self._scores:
            return nullcontext()  # which TRL leaves without autocast
        return self._training.forward_context()

    @property
    def phase(self) -> str:
        return self._training.phase

    @phase.setter
    def phase(self, name: str) -> None:
        self._training.phase = name
