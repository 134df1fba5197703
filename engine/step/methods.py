"""Learning from answers: a language model, the frozen reference that scores the same, the loss.

As TRL 1.16 trains by default: ``trainer/dpo_trainer.py``, ``trainer/kto_trainer.py``,
``trainer/grpo_trainer.py``, ``trainer/distillation_trainer.py`` and
``experimental/orpo/orpo_trainer.py``. What only the metrics need is left out; it is gone before the
peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from ..core.choices import ZERO, Method, Parallelism, Rollout
from ..core.errors import InvalidInput
from ..interface.workload import Workload
from .adapting import without_adapters
from .batches import Batch
from .building import new_model
from .divergence import divergences
from .losses import as_forward_pass
from .output import Output
from .scoring import log_probabilities

_BETA = 0.1
_CLIP = 0.2
_KL = "KL_"
"""Before the names of the texts by which KTO estimates how far the model has moved."""


class Learner(torch.nn.Module):
    """A language model that learns from answers, with the reference that it is compared with.

    Args:
        policy: The model that is trained.
        workload: The method, and the length of answers.

    Attributes:
        answer_length: Tokens of each text that are scored.
        refers: Whether a reference scores them too.
    """

    def __init__(self, policy: Any, workload: Workload) -> None:
        super().__init__()
        self.policy = policy
        self.reference: torch.nn.Module | None = None
        self._method = workload.method
        self.answer_length = workload.completion_length or (workload.sequence_length or 0) - 1
        without = workload.lora_rank is not None or workload.precomputed_reference
        self.refers = workload.method.refers or workload.kl_reference
        if workload.teacher is not None:
            self.reference = _teacher(workload)
        elif self.refers and not without:
            self.reference = new_model(workload).requires_grad_(False).eval()
        if workload.method not in (Method.GRPO, Method.DISTILLATION):  # ``disable_dropout`` in TRL
            self._drop_nothing()
        if without_adapters(policy).base_model is without_adapters(policy):
            message = f"{workload.preset.display_name} has no body apart from its head; choose sft"
            raise InvalidInput({"method": message})

    @property
    def trained(self) -> Sequence[torch.nn.Module]:
        """The models that learn."""
        return (self.policy,)

    @property
    def frozen(self) -> Sequence[torch.nn.Module]:
        """The models that never learn; none where the policy without adapters is the reference."""
        return () if self.reference is None else (self.reference,)

    def _drop_nothing(self) -> None:
        for module in self.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0

    def train(self, mode: bool = True) -> Learner:
        """Set the mode of what is trained; a reference stays as it is."""
        self.training = mode
        self.policy.train(mode)
        return self

    def forward(self, **batch: torch.Tensor) -> Output:
        """The loss of one batch, as :func:`answers` makes it."""
        return Output(_LOSSES[self._method](self, batch))

    def scores(self, model: Any, batch: Batch) -> torch.Tensor:
        """The log-probability of each answer, of shape (texts,)."""
        return self.token_scores(model, batch).sum(1)

    def token_scores(self, model: Any, batch: Batch) -> torch.Tensor:
        """The log-probability of each token of each answer, of shape (texts, tokens)."""
        targets = batch["input_ids"][:, -self.answer_length :]

        def scored(**texts: torch.Tensor) -> torch.Tensor:
            return log_probabilities(*self.read(model, texts), targets.flatten())

        scores: torch.Tensor = as_forward_pass(model, scored, batch)
        return scores.view(targets.shape)

    def read(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Input of a model's head for the tokens of answers, and the head's weight."""
        causal = without_adapters(model)
        hidden = causal.base_model(**batch, use_cache=False).last_hidden_state[:, :-1]
        hidden = hidden[:, -self.answer_length :]
        return hidden.flatten(0, 1), causal.get_output_embeddings().weight

    @contextmanager
    def referring(self) -> Iterator[Any]:
        """The reference: a model of its own, or the policy without its adapters."""
        with torch.no_grad():
            if self.reference is not None:
                yield self.reference
            else:
                with self.policy.disable_adapter():
                    yield self.policy


def trained_in(model: torch.nn.Module) -> Sequence[torch.nn.Module]:
    """The models that learn: of those that learn from answers the ones that are not frozen."""
    return model.trained if isinstance(model, Learner) else (model,)


def _teacher(workload: Workload) -> torch.nn.Module:
    """The model that is distilled, in the student's format."""
    taught = Workload(
        workload.teacher or "",
        task=workload.task,
        sequence_length=workload.sequence_length,
        precision=workload.precision,
        attention=workload.attention,
    )
    return new_model(taught).requires_grad_(False).eval()


def method_caveats(workload: Workload) -> list[str]:
    """Caveats about learning from answers."""
    if workload.method is Method.SFT:
        return []
    found = []
    if workload.method.texts_per_sample == 2:
        found.append("A sample is a pair: two texts of the sequence length.")
    if workload.method is Method.GRPO:
        found.append(
            "A sample is one completion: per_device_train_batch_size in TRL. Rewards are computed "
            "by functions that take no GPU memory."
        )
    if workload.method is Method.PPO:
        scoring = "of its preset" if workload.reward_model else "as large as the policy"
        found.append(
            "A sample is one completion. Beside the policy, all of a value model is trained; it "
            f"and the frozen reward model are {scoring}.{_where_rewards(workload)} As in TRL 1.12, "
            "the scores of all words at each new token stay during the update; its rollouts of "
            "more than 64 are predicted too large."
        )
    if workload.method is Method.DISTILLATION:
        whole = workload.parallelism not in (Parallelism.NONE, Parallelism.DDP)
        where = ", whole on each GPU, as TRL leaves it" if whole else ""
        found.append(
            f"The teacher is frozen, without gradients, in the student's number format{where}."
        )
    is_apart = workload.rollout is Rollout.SERVER or workload.method is Method.DISTILLATION
    if workload.method in (Method.GRPO, Method.DISTILLATION) and is_apart:
        found.append(
            "This is the update. Completions are taken to be generated elsewhere, such as by a "
            "vLLM server."
        )
    if (workload.method.refers or workload.kl_reference) and not workload.precomputed_reference:
        found.append(_reference_caveat(workload))
    gathers = workload.method.generates and workload.rollout is Rollout.GENERATE
    if gathers and workload.parallelism is Parallelism.ZERO_3:
        whose = " of policy and value model" if workload.method is Method.PPO else ""
        found.append(
            f"All weights{whose} are gathered on each GPU while completions are generated "
            "(ds3_gather_for_generation in TRL, on by default)."
        )
    found.append(
        f"All logits are kept at once, as in TRL's {workload.method.upper()}Trainer."
        if workload.method.keeps_logits
        else "Answers are scored in tiles of logits, as in TRL 1.16. Releases that keep all "
        "logits, such as 1.0, need much more memory."
    )
    return found


def _where_rewards(workload: Workload) -> str:
    if workload.parallelism is Parallelism.ZERO_3:
        return " The reward model is divided among the GPUs too."
    return " The reward model is whole on each GPU." if workload.parallelism in ZERO else ""


def _reference_caveat(workload: Workload) -> str:
    if workload.lora_rank is not None:
        return (
            "The reference is the model with its adapters switched off, so there is no second copy."
        )
    copy = "The reference is a second, frozen copy of the model, in the same number format"
    if workload.parallelism is Parallelism.FSDP:
        return (
            f"{copy}, sharded too. As TRL 1.16 shards it with FSDP2, all of it is gathered on each "
            "GPU while it reads; with FSDP1 block by block, which needs less."
        )
    if workload.parallelism is Parallelism.ZERO_3:
        return f"{copy}, divided among the GPUs like the policy, as TRL does with stage 3."
    if workload.parallelism in ZERO:
        return f"{copy}, whole on each GPU, as TRL keeps it with stages below 3."
    return f"{copy}."


def _dpo(learner: Learner, batch: Batch) -> torch.Tensor:
    """DPO: each pair's first answer becomes more likely than its second (Rafailov et al. 2023)."""
    given = dict(batch)
    before = given.pop("reference", None)
    scores = learner.scores(learner.policy, given)
    if before is None:
        with learner.referring() as reference:
            before = learner.scores(reference, given)
    chosen, rejected = (scores - before).chunk(2)
    return -logsigmoid(_BETA * (chosen - rejected)).mean()


def _kto(learner: Learner, batch: Batch) -> torch.Tensor:
    """Good answers become more likely, bad ones less (Ethayarajh et al. 2024).

    How far the model has moved from the reference is seen by answers to other prompts.
    """
    given = dict(batch)
    before, before_of_others = given.pop("reference", None), given.pop(f"{_KL}reference", None)
    others = {
        name.removeprefix(_KL): given.pop(name) for name in list(given) if name.startswith(_KL)
    }
    with torch.no_grad():
        scores_of_others = learner.scores(learner.policy, others)
    scores = learner.scores(learner.policy, given)
    if before is None:
        with learner.referring() as reference:
            before_of_others = learner.scores(reference, others)
            before = learner.scores(reference, given)
    moved = (scores_of_others - before_of_others).mean().clamp(min=0)
    return (1 - torch.sigmoid(_BETA * (scores - before - moved))).mean()


def _grpo(learner: Learner, batch: Batch) -> torch.Tensor:
    """Answers that got a better reward than others become more likely (Shao et al. 2024).

    The answers are new, so that they are scored once. A reference scores them before.
    """
    given = dict(batch)
    rewards = given.pop("advantages").unsqueeze(1)
    before = None
    if learner.refers:
        with learner.referring() as reference:
            before = learner.token_scores(reference, given)
    scores = learner.token_scores(learner.policy, given)
    ratio = torch.exp(scores - scores.detach())
    losses = -torch.min(ratio * rewards, ratio.clamp(1 - _CLIP, 1 + _CLIP) * rewards)
    if before is not None:
        apart = before - scores
        losses = losses + _BETA * (apart.exp() - apart - 1)
    mean: torch.Tensor = losses.mean()
    return mean


def _distillation(learner: Learner, batch: Batch) -> torch.Tensor:
    """The student comes to expect the words that the teacher does (forward KL)."""

    def compared(**texts: torch.Tensor) -> torch.Tensor:
        hidden, weight = learner.read(learner.policy, texts)
        with learner.referring() as teacher:
            others, other_weight = as_forward_pass(
                teacher, lambda **same: learner.read(teacher, same), texts
            )
        if len(weight) != len(other_weight):
            message = f"its vocabulary has {len(other_weight):,} words, not {len(weight):,}"
            raise InvalidInput({"teacher": f"{message}; choose one of the same family"})
        return divergences(hidden, weight, others, other_weight).mean()

    loss: torch.Tensor = as_forward_pass(learner.policy, compared, batch)
    return loss


def _orpo(learner: Learner, batch: Batch) -> torch.Tensor:
    """The first answer of each pair is learned, and its odds against the second (Hong et al. 2024).

    Its trainer keeps the logits of all tokens, and goes through them text by text.
    """
    logits = learner.policy(**batch, use_cache=False).logits.float()
    ids = batch["input_ids"]
    pairs = len(ids) // 2
    known = logits[:pairs, :-1].contiguous()
    likelihood = cross_entropy(known.flatten(0, 1), ids[:pairs, 1:].flatten())
    scores = _scores_of_logits(logits[:, :-1], ids[:, 1:])[:, -learner.answer_length :]
    chosen, rejected = scores.mean(1).chunk(2)
    odds = (chosen - rejected) - (_log_of_rest(chosen) - _log_of_rest(rejected))
    return likelihood - _BETA * logsigmoid(odds).mean()


def _scores_of_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As TRL's ``selective_log_softmax`` in fp32."""
    found = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return found - torch.stack([text.logsumexp(-1) for text in logits])


def _log_of_rest(score: torch.Tensor) -> torch.Tensor:
    """The logarithm of one less a probability."""
    return torch.log1p(-score.exp())


_LOSSES: Mapping[Method, Callable[[Learner, Batch], torch.Tensor]] = {
    Method.DPO: _dpo,
    Method.KTO: _kto,
    Method.ORPO: _orpo,
    Method.GRPO: _grpo,
    Method.DISTILLATION: _distillation,
}
