"""PPO: a policy and a value model that learn, a frozen reference and a frozen reward model.

As ``experimental/ppo/ppo_trainer.py`` of TRL 1.12 trains, the last release that has it: in a
rollout, the policy generates and keeps the scores of all words at each token; then reference, value
model and reward model read the answers, with the logits and hidden states that they return. The
scores stay until those of the next rollout are there, the update's logits and hidden states until
its metrics. Advantages are those of λ = 1, which take the same memory as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InvalidInput
from ..interface.workload import Workload
from ..models.tasks import Task
from .batches import Batch
from .building import new_model
from .checkpointing import checkpoint
from .losses import as_forward_pass
from .methods import Learner
from .output import Output
from .text_scores import text_scores

TEMPERATURE = 0.7
_CLIP, _CLIP_VALUE, _VALUE_SHARE, _KL = 0.2, 0.2, 0.1, 0.05


class ActorCritic(Learner):
    """The four models of PPO.

    Args:
        policy: The model that is trained, beside the value model.
        workload: The length of answers, and what rewards them.
    """

    def __init__(self, policy: Any, workload: Workload) -> None:
        super().__init__(policy, workload)
        self.value_model: Any = _scoring_model(workload)
        words, others = (
            model.get_input_embeddings().num_embeddings for model in (policy, self.value_model)
        )
        if words != others:
            message = f"its vocabulary has {others:,} words, not {words:,}"
            raise InvalidInput({"reward_model": f"{message}; choose one of the same family"})
        if workload.gradient_checkpointing:
            checkpoint(self.value_model, workload)
        self.reward_model: Any = _scoring_model(workload).requires_grad_(False).eval()
        self._drop_nothing()
        self._caches = not workload.gradient_checkpointing
        self._logits: torch.Tensor | None = None
        self._update: tuple[Any, ...] = ()
        self._scored: tuple[torch.Tensor, ...] = ()

    def train(self, mode: bool = True) -> ActorCritic:
        """Set the mode of what is trained; frozen models stay as they are."""
        super().train(mode)
        self.value_model.train(mode)
        return self

    @property
    def trained(self) -> Sequence[torch.nn.Module]:
        """Policy and value model."""
        return (self.policy, self.value_model)

    @property
    def frozen(self) -> Sequence[torch.nn.Module]:
        """The reward model, and the reference where it is a model of its own."""
        return (*super().frozen, self.reward_model)

    def forward(self, **batch: torch.Tensor) -> Output:
        """The loss of one batch, as :func:`~.batches.answers.answers` makes it."""
        given = dict(batch)
        before, advantages, returns, values = (
            given.pop(name) for name in ("before", "advantages", "returns", "values")
        )
        inputs = self._inputs(given)
        critic, estimates = _read(self.value_model, inputs)
        outputs = self.policy(**inputs)
        del critic
        states, logits = outputs.hidden_states, outputs.logits
        if logits.dtype is not before.dtype:  # what autocast returns, Accelerate makes fp32
            states, logits = tuple(state.float() for state in states), logits.float()
            estimates = estimates.float()
            del outputs
        logits = self._of_answers(logits)
        logits /= TEMPERATURE
        scores = text_scores(logits, self._targets(given))
        estimates = self._of_answers(estimates).squeeze(-1)
        near = estimates.clamp(values - _CLIP_VALUE, values + _CLIP_VALUE)
        missed = torch.max((estimates - returns).square(), (near - returns).square())
        ratio = torch.exp(scores - before)
        gained = -advantages * ratio
        clipped = -advantages * ratio.clamp(1 - _CLIP, 1 + _CLIP)
        self._update = (states, logits)
        return Output(torch.max(gained, clipped).mean() + _VALUE_SHARE * 0.5 * missed.mean())

    @torch.no_grad()
    def end_update(self) -> None:
        """Compute what the metrics of an update need, and let go of it."""
        if self._update:
            _, logits = self._update
            chances = logits.softmax(-1)
            logits.logsumexp(-1) - (chances * logits).sum(-1)
        self._update = ()

    @torch.no_grad()
    def score(self, texts: Batch, scores_of_words: list[torch.Tensor]) -> None:
        """Let all four models score answers.

        Args:
            texts: Prompts with their answers, on the device.
            scores_of_words: At each token, of shape (B, tokens, V); emptied.
        """
        stacked = torch.cat(scores_of_words, 1)
        scores_of_words.clear()
        logits = stacked.clone()  # padded
        del stacked
        if self._logits is None:  # those of the rollout before
            self._logits = torch.empty_like(logits)
        self._logits = logits
        targets, inputs = self._targets(texts), self._inputs(texts)
        scores = text_scores(logits, targets)
        with self.referring() as reference:
            outputs = reference(**inputs)
            of_reference = self._of_answers(outputs.logits)
            of_reference /= TEMPERATURE
            before = text_scores(of_reference, targets)
            del outputs, of_reference
        inputs = inputs | {"use_cache": False}
        values = self._of_answers(_read(self.value_model, inputs)[1]).squeeze(-1)
        rewards = -_KL * (scores - before)
        rewards[:, -1] += _read(self.reward_model, inputs)[1][:, -1, 0]
        following = torch.cat((values[:, 1:], torch.zeros_like(values[:, :1])), 1)
        advantages = (rewards + following - values).flip(1).cumsum(1).flip(1)
        returns = advantages + values
        self._scored = (*texts.values(), scores, before, values, rewards, advantages, returns)

    def _targets(self, texts: Batch) -> torch.Tensor:
        targets: torch.Tensor = texts["input_ids"][:, -self.answer_length :]
        return targets

    def _of_answers(self, found: torch.Tensor) -> torch.Tensor:
        """Values found at the token before each token of the answers."""
        return found[:, -self.answer_length - 1 : -1]

    def _inputs(self, texts: Batch) -> dict[str, Any]:
        mask = texts["attention_mask"].bool()
        return {
            "input_ids": texts["input_ids"].masked_fill(~mask, 0),
            "attention_mask": mask,
            "position_ids": mask.cumsum(1) - mask.long(),
            "output_hidden_states": True,
            "use_cache": self._caches,
        }


def _scoring_model(workload: Workload) -> Any:
    """A reward or value model: a number for each token, in the policy's format."""
    scoring = Workload(
        workload.reward_model or workload.model,
        config=None if workload.reward_model else workload.config,
        task=Task.SEQUENCE_CLASSIFICATION,
        label_count=1,
        sequence_length=workload.sequence_length,
        precision=workload.precision,
        attention=workload.attention,
    )
    return new_model(scoring)


def _read(model: Any, inputs: dict[str, Any]) -> tuple[Any, torch.Tensor]:
    """Output of the body of a reward or value model, and its scores, of shape (B, S, 1)."""

    def scored(**texts: Any) -> tuple[Any, torch.Tensor]:
        read = model.base_model(**texts)
        return read, model.score(read.hidden_states[-1])

    found: tuple[Any, torch.Tensor] = as_forward_pass(model, scored, inputs)
    return found
