"""The ladder: the best combinations of moves for one workload, in order, and how they are named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..interface.result import AnalysisResult
from ..interface.trial import Source
from .economics import Speedup
from .worth import WORTH_PREDICTED, is_worth_it

MAX_RUNGS = 10

WORTH_A_MOVE = WORTH_PREDICTED
"""A rung with one move more must be expected to be at least 5% faster than the one without it."""

ALIKE = 0.95
"""Rungs within 5% of the best are ordered by what they change about learning, then by effort."""

MAX_WORDS = 15
"""Word limit of a decision."""

ACCUMULATION = "accumulation"
CHECKPOINTING = "gradient checkpointing"
NO_CHECKPOINTING = "no gradient checkpointing"
NO_CACHE = "no key-value cache"

_SWITCHES = {
    CHECKPOINTING: "turn on gradient checkpointing",
    NO_CHECKPOINTING: "turn off gradient checkpointing",
    NO_CACHE: "turn off the key-value cache",
}


class Learning(StrEnum):
    """Effect of a move on learning, the least first."""

    NONE = "none"
    GLOBAL_BATCH = "global batch"
    NUMERICS = "numerics"
    OPTIMIZER = "optimizer"
    TRAINED = "what is trained"


class Effort(StrEnum):
    """Effort of a move, the least first."""

    ONE_LINE = "one line"
    FEW_LINES = "a few lines"
    MACHINE = "another machine"


@dataclass(frozen=True)
class Move:
    """One change that may help.

    Attributes:
        name: The new setting, in engineers' terms: ``bf16``, ``gradient checkpointing``.
        fields: The fields of the request that change, with their new values.
        learning: Its effect on learning.
        effort: Its effort.
    """

    name: str
    fields: dict[str, Any] = field(hash=False)
    learning: Learning = Learning.NONE
    effort: Effort = Effort.ONE_LINE


@dataclass(frozen=True)
class Rung:
    """One combination of moves, at the batch that is recommended with them. All is predicted.

    Attributes:
        moves: The changes, in engineers' terms, the batch last; empty where nothing changes.
        fields: The fields of the request that change, with their new values; the current batch is
            not among them.
        learning: The most that one of the moves changes about learning.
        effort: The most that one of the moves takes.
        decision: The advice, in one sentence; empty where it does not fit.
        fits: Whether a batch fits.
        why_not: Reason why it cannot be done, or does not fit; empty where it fits.
        batch_size: The recommended batch, per GPU; ``None`` where it does not fit.
        gpu: The catalogue name of another GPU; empty for the request's own.
        global_batch_before, global_batch_size: Samples of one optimizer step, over its
            micro-batches and GPUs: today, and with these moves. ``None`` where it does not fit, or
            an older version stored it.
        keeps_global_batch: Whether an optimizer step sees as many samples as today; ``None`` as
            above.
        training: Effect of the moves on training, as text; see :func:`about_training`.
        learning_rate: What to do with the learning rate, in one line; empty without moves.
        samples_per_second: At that batch, on all GPUs that share the work.
        speedup: Speedup over the unchanged workload at the current batch; ``None`` if that does
            not fit.
        speedup_low, speedup_high: Its interval.
        usd_per_run: Cost of a run with these moves; the assumed hours of a run are those of today.
            ``None`` as above.
        usd_per_million_samples: Cost of a million samples with these moves, of all GPUs that share
            the work; ``None`` without a price, or if an older version stored it.
        result: The whole answer with these moves. Its current batch, speedup and savings are over
            the unchanged workload at the current batch; curve, limits and tensors are those with
            the moves. ``None`` on another GPU, and where it does not fit.
    """

    moves: list[str]
    fields: dict[str, Any]
    learning: Learning = Learning.NONE
    effort: Effort = Effort.ONE_LINE
    decision: str = ""
    fits: bool = False
    why_not: str = ""
    batch_size: int | None = None
    gpu: str = ""
    global_batch_before: int | None = None
    global_batch_size: int | None = None
    keeps_global_batch: bool | None = None
    training: str = ""
    learning_rate: str = ""
    samples_per_second: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    usd_per_run: float | None = None
    usd_per_million_samples: float | None = None
    result: AnalysisResult | None = field(default=None)

    @property
    def shortens(self) -> bool:
        """Whether samples are shorter with it, so that they are not comparable."""
        return "sequence_length" in self.fields

    @property
    def is_away(self) -> bool:
        """Whether it takes another machine."""
        return self.effort is Effort.MACHINE

    @property
    def helps(self) -> bool:
        """Whether it is worth a change from today, or surely fits where today does not."""
        is_faster = self.speedup is None or self.is_worth_it
        return self.result is not None and is_faster and self.result.safe_batch_size != 0

    @property
    def is_worth_it(self) -> bool:
        """Whether its speedup is worth a change; not where there is none to compare with."""
        ratio, low, high = self.speedup, self.speedup_low, self.speedup_high
        if ratio is None or low is None or high is None:
            return False
        return is_worth_it(Speedup(ratio, low, high), Source.PREDICTED)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def learning_of(moves: Iterable[Move]) -> Learning:
    """The most that one of the moves changes about learning."""
    return max((move.learning for move in moves), key=list(Learning).index, default=Learning.NONE)


def effort_of(moves: Iterable[Move]) -> Effort:
    """The most that one of the moves takes."""
    return max((move.effort for move in moves), key=list(Effort).index, default=Effort.ONE_LINE)


_CHANGES = {
    Learning.NUMERICS: "changes the numerics",
    Learning.OPTIMIZER: "changes the optimizer",
    Learning.TRAINED: "changes what is trained",
}


def about_training(rung: Rung) -> str:
    """Whether the moves of a rung raise the batch or keep the training as it is, as text.

    Empty without moves, and where that is not known. As it is means: an optimizer step sees as many
    samples, and computes the same up to rounding.
    """
    before, after = rung.global_batch_before, rung.global_batch_size
    if not rung.moves or before is None or after is None:
        return ""
    changes = _CHANGES.get(rung.learning, "")
    if before != after:
        verb = "raises" if after > before else "lowers"
        batch = f"{verb} the batch per optimizer step from {before:,} to {after:,}"
        return f"{batch} and {changes}" if changes else batch
    if changes:
        return f"keeps the batch per optimizer step and {changes}"
    if rung.learning is Learning.GLOBAL_BATCH:
        return "keeps the batch per optimizer step, but compares samples in other groups"
    return "keeps the training as it is"


def in_order(rungs: Sequence[Rung]) -> list[Rung]:
    """The ladder of these rungs: the unchanged workload, then the best first.

    What fits comes before what does not, what can be done on this machine before what takes another
    one, and whole samples before shorter ones. Then the faster comes first. Of those within 5% of
    the best that is left, the one that changes least about learning does, then the one that keeps
    the global batch, then the one with the least effort and moves. A rung is left out where it is
    no faster than today, or one with fewer of its moves is as good. What does not fit alone is left
    out where it does with other moves.

    Args:
        rungs: The unchanged workload first.
    """
    today, *others = rungs
    gaining = [rung for rung in others if _gains(rung)]
    left = [rung for rung in gaining if not any(_stands_for(other, rung) for other in rungs)]
    fitting = [rung for rung in left if rung.fits]
    at_hand = [rung for rung in fitting if not rung.is_away]
    here = _best_first([rung for rung in at_hand if not rung.shortens])
    here += _best_first([rung for rung in at_hand if rung.shortens])
    away = _best_first([rung for rung in fitting if rung.is_away])
    refused = [rung for rung in left if not (rung.fits or _fits_with_more(rung, at_hand))]
    most_here = max(MAX_RUNGS - 1 - len(away), 1)
    return [today, *here[:most_here], *away, *refused][:MAX_RUNGS]


def by_gain(rungs: Iterable[Rung]) -> list[Rung]:
    """The same for a table: the fastest first, then shorter samples, and last what does not fit."""
    return sorted(rungs, key=lambda r: (not r.fits, r.shortens, -(r.samples_per_second or 0.0)))


def best_of(rungs: Iterable[Rung], *, keeps_global_batch: bool) -> Rung | None:
    """The best rung on this machine that keeps the global batch, or that changes it.

    Adapters and shorter samples train something else, so they count only where nothing else fits.
    Another batch alone counts only where no other move helps: it comes first in the ladder, as what
    others are compared with.

    Args:
        rungs: In the order of the ladder.
        keeps_global_batch: Which of both is wanted.
    """
    helping = [rung for rung in rungs if rung.moves and rung.helps and not rung.is_away]
    alike = [rung for rung in helping if rung.learning is not Learning.TRAINED] or helping
    wanted = [rung for rung in alike if rung.keeps_global_batch is keeps_global_batch]
    return next(iter(sorted(wanted, key=lambda rung: not rung.fields)), None)


def _fits_with_more(refused: Rung, fitting: Iterable[Rung]) -> bool:
    return any(refused.fields.items() < rung.fields.items() for rung in fitting)


def _best_first(rungs: Sequence[Rung]) -> list[Rung]:
    left, ordered = list(rungs), []
    while left:
        enough = ALIKE * max(rung.samples_per_second or 0.0 for rung in left)
        alike = [rung for rung in left if (rung.samples_per_second or 0.0) >= enough]
        best = min(alike, key=_cost)
        left.remove(best)
        ordered.append(best)
    return ordered


def _cost(rung: Rung) -> tuple[int, bool, int, int, float]:
    return (
        _rank(rung.learning),
        rung.keeps_global_batch is False,
        list(Effort).index(rung.effort),
        len(rung.moves),
        -(rung.samples_per_second or 0.0),
    )


def _stands_for(simpler: Rung, rung: Rung) -> bool:
    """Whether a rung with fewer moves is as good as another, and changes no more about learning."""
    fewer = simpler.fields.items() < rung.fields.items() and simpler.gpu == rung.gpu
    if not (fewer and simpler.fits):
        return False
    if not rung.fits:  # a single move stays, to say why it does not help
        return bool(simpler.fields)
    if rung.keeps_global_batch and simpler.keeps_global_batch is False:
        return False
    if rung.shortens and not simpler.shortens:
        return True
    if _rank(simpler.learning) > _rank(rung.learning):
        return False
    return (rung.samples_per_second or 0.0) < WORTH_A_MOVE * (simpler.samples_per_second or 0.0)


def _gains(rung: Rung) -> bool:
    """Whether a rung is faster than today; another GPU may be cheaper instead."""
    return rung.speedup is None or bool(rung.gpu) or rung.speedup >= WORTH_A_MOVE


def _rank(learning: Learning) -> int:
    return list(Learning).index(learning)


# How moves are named in a decision


def listed(words: Sequence[str]) -> str:
    """Items joined to a list, such as ``bf16, LoRA and batch 128``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def switch_to(moves: Sequence[str], outcome: str) -> str:
    """A decision for moves, such as ``Switch to bf16 and batch 128: 2.9× faster``.

    Args:
        moves: At least one; the batch is one of them if it changes.
        outcome: Their benefit, in few words.
    """
    whole, first = f"Switch to {listed(moves)}", _verb_for(moves[0])
    if first and len(moves) < 3:
        rest = [f"use {move}" for move in moves[1:]]
        whole = _capitalized(listed([first, *rest]))
    return in_few_words(f"{whole}: {outcome}.", f"Make these {len(moves)} changes: {outcome}.")


def fits_with(moves: Sequence[str], batch_size: int) -> str:
    """The decision for a workload that does not fit without these moves."""
    does, batch = f"switch to {listed(moves)}", f"batch {batch_size:,} fits"
    if len(moves) == 1:
        does = _verb_for(moves[0]) or does
    return in_few_words(
        f"It does not fit: {does}, then {batch}.",
        f"{_capitalized(does)}: then {batch}.",
        f"It does not fit: make these {len(moves)} changes, then {batch}.",
    )


def _verb_for(move: str) -> str:
    """A move as something to do; empty for those that are switched to."""
    if move.startswith(ACCUMULATION):
        return f"accumulate{move.removeprefix(ACCUMULATION)}"
    return _SWITCHES.get(move, "")


def in_few_words(*sentences: str) -> str:
    """The first of the sentences that is short enough for a decision; else the last."""
    return next((one for one in sentences if len(one.split()) <= MAX_WORDS), sentences[-1])


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
