"""The combinations of moves to try next.

Nothing is predicted here: what was found of some combinations says which others are worth a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...answer.ladder import (
    ACCUMULATION,
    CHECKPOINTING,
    NO_CACHE,
    NO_CHECKPOINTING,
    WORTH_A_MOVE,
    Effort,
    Learning,
    Move,
    Rung,
    effort_of,
    learning_of,
)
from .moves import (
    APOLLO,
    BF16_WEIGHTS,
    CHUNKED,
    EIGHT_BIT,
    FOUR_BIT,
    HALF,
    LESS_ACCUMULATION,
    LORA,
    QLORA,
    shortens,
)

_PAIRED = (CHUNKED, EIGHT_BIT, ACCUMULATION, LESS_ACCUMULATION, LORA, QLORA, FOUR_BIT)
"""Moves that are tried together with checkpointing, besides shorter samples."""
_SAVING = (
    *(NO_CACHE, CHECKPOINTING, CHUNKED, EIGHT_BIT, APOLLO),
    *(HALF, BF16_WEIGHTS, LORA, FOUR_BIT),
)
_NEEDLESS_WITH = {
    APOLLO: (EIGHT_BIT,),
    LORA: (EIGHT_BIT, APOLLO),
    QLORA: (EIGHT_BIT, APOLLO),
}
"""Moves that save optimizer state, of which these others leave little."""

_MIN_SHARE = 0.07
"""Share of a step from which on an optimizer's time is worth a move: 8-bit AdamW saves 43% of it,
as it moves 16 bytes for a weight in fp32 instead of 28."""

Combination = tuple[Move, ...]
"""Moves in the order of :func:`~engine.prediction.plans.moves.moves_for`."""


@dataclass(frozen=True)
class Reached:
    """Findings about one combination.

    Attributes:
        rung: The rung at its recommended batch.
        applies: Whether the model can be trained that way.
        is_adapted: Whether only adapters are trained.
        memory_bound: Whether memory keeps it from its best speed.
        loses_batch: Whether the current batch does not surely fit.
        kept: The rung at the current batch, where the recommended one changes the global batch;
            ``None`` where it does not, or the current batch does not surely fit.
        optimizer_share: Share of the optimizer in the time of a step.
    """

    rung: Rung
    applies: bool = True
    is_adapted: bool = False
    memory_bound: bool = False
    loses_batch: bool = False
    optimizer_share: float = 0.0
    kept: Rung | None = None

    @property
    def is_short(self) -> bool:
        """Whether less memory would help."""
        return self.memory_bound or self.loses_batch or not self.rung.fits

    @property
    def speed(self) -> float:
        return self.rung.samples_per_second or 0.0


def next_combinations(
    found: Mapping[Combination, Reached],
    moves: Sequence[Move],
    shards: Sequence[Move],
    may_fit: Callable[[Combination], bool],
) -> list[Combination]:
    """The combinations to try next; none where the ladder is done.

    Each move is tried alone where it may help. Then those that helped are added to the fastest
    combination, as is LoRA, until nothing helps any more.

    Where the current batch does not surely fit, what saves memory may help, and so may
    accumulation. If no such move alone keeps that batch, checkpointing is tried with each other
    one, as both take away different memory.

    Where no batch fits, these pairs are tried at once, QLoRA among them. Then come all moves that
    save memory together, once for each change about learning that is less than that of what fits
    already. The needless ones are taken out of the first that fits. Where only LoRA makes it fit,
    more GPUs are tried.

    Args:
        found: The combinations tried; the unchanged workload, without a move, is among them.
        moves: Every single move, by :func:`~engine.prediction.plans.moves.moves_for`.
        shards: The moves to more GPUs.
        may_fit: Whether a combination's weights, gradients and optimizer state alone fit.
    """
    today = found[()]
    if len(found) == 1:
        wanted: list[Combination] = [(move,) for move in moves if _may_help(today, move)]
        if today.rung.fits:
            adapters = (LORA, QLORA)
            wanted = [one for one in wanted if one[0].name not in adapters]
        else:
            wanted += _pairs(found, moves)
    else:
        wanted = _added_to_the_fastest(found, moves)
        if today.loses_batch and not _keeps_batch(found):
            wanted += _pairs(found, moves)
        if not today.rung.fits:
            wanted += [*_together(found, moves), *_without_each(found)]
            wanted += _on_more_gpus(found, moves, shards, may_fit)
    return [one for one in dict.fromkeys(wanted) if one not in found and may_fit(one)]


def _may_help(reached: Reached, move: Move) -> bool:
    """Whether a move may help a combination, as far as that is known without trying."""
    if move.name in (CHECKPOINTING, CHUNKED, FOUR_BIT):
        return reached.is_short
    if move.name == ACCUMULATION:
        return reached.rung.fits and reached.loses_batch
    if shortens(move):
        return reached.loses_batch or not reached.rung.fits
    if move.name in (QLORA, APOLLO):
        return not reached.rung.fits
    if move.name == NO_CHECKPOINTING:
        return not reached.loses_batch and reached.rung.fits
    if move.name == EIGHT_BIT:
        return reached.is_short or reached.optimizer_share >= _MIN_SHARE
    # Weights that are trained are better kept in fp32 where that fits.
    return move.name != BF16_WEIGHTS or reached.is_adapted or not reached.rung.fits


def _added_to_the_fastest(
    found: Mapping[Combination, Reached], moves: Sequence[Move]
) -> list[Combination]:
    fitting = [
        one
        for one in _fitting(found)
        if effort_of(one) is not Effort.MACHINE and not any(map(shortens, one))
    ]
    if not fitting:
        return []
    top = max(found[one].speed for one in fitting)
    fastest = min((one for one in fitting if WORTH_A_MOVE * found[one].speed > top), key=len)
    changed = {name for move in fastest for name in move.fields}
    needless = _needless_with(fastest)
    return [
        tuple(sorted((*fastest, move), key=moves.index))
        for move in moves
        if not (changed & move.fields.keys() or shortens(move) or move.name in needless)
        and not (move.name in (LORA, QLORA) and _projects(fastest))
        and _may_help(found[fastest], move)
        and _has_helped(found, move)
    ]


def _projects(moves: Combination) -> bool:
    """Whether gradients are projected with these moves, which those of adapters are not."""
    return any(move.name == APOLLO for move in moves)


def _has_helped(found: Mapping[Combination, Reached], move: Move) -> bool:
    """Whether a move has helped wherever it was tried: by its speed, or as it keeps the batch."""
    for one, reached in found.items():
        without = found.get(tuple(other for other in one if other != move))
        if move not in one or without is None:
            continue
        if not reached.applies:
            return False
        keeps = move.name == ACCUMULATION or (without.loses_batch and not reached.loses_batch)
        is_faster = reached.speed >= WORTH_A_MOVE * without.speed
        if without.rung.fits and not (keeps or is_faster):
            return False
    return True


def _keeps_batch(found: Mapping[Combination, Reached]) -> bool:
    """Whether a move alone makes the current batch fit, and trains what is trained today."""
    return any(
        reached.rung.fits and not reached.loses_batch
        for one, reached in found.items()
        if len(one) == 1 and learning_of(one) is not Learning.TRAINED
    )


def _pairs(found: Mapping[Combination, Reached], moves: Sequence[Move]) -> list[Combination]:
    """Checkpointing with each other move that saves memory, but for those that do not apply."""
    refused = {move for one, reached in found.items() for move in one if not reached.applies}
    base = [move for move in moves if move.name == CHECKPOINTING and move not in refused]
    others = [
        move
        for move in moves
        if move not in refused
        and (move.name in _PAIRED or shortens(move))
        and _may_help(found[()], move)
        and not (move.name == LORA and found[()].rung.fits)
    ]
    return [tuple(sorted((one, move), key=moves.index)) for one in base for move in others]


def _together(found: Mapping[Combination, Reached], moves: Sequence[Move]) -> list[Combination]:
    """All moves that save memory, once for each change about learning, the least first.

    Only those that change less than what fits already.
    """
    fitting = [list(Learning).index(learning_of(one)) for one in _fitting(found)]
    ranks = {move.name: list(Learning).index(move.learning) for move in moves}
    least = min(fitting, default=len(Learning))
    return [
        one
        for one in _all_together(moves)
        if len(one) > 1 and max(ranks[move.name] for move in one) < least
    ]


def _all_together(moves: Sequence[Move]) -> list[Combination]:
    saving = [move for move in moves if move.name in _SAVING]
    ranks = {move.name: list(Learning).index(move.learning) for move in saving}
    together = [tuple(m for m in saving if ranks[m.name] <= rank) for rank in range(len(Learning))]
    together = [_without_needless(one) for one in together]
    quantized = [move for move in moves if move.name == QLORA]
    return together + [
        tuple(move if m.name == LORA else m for m in together[-1]) for move in quantized
    ]


def _needless_with(moves: Combination) -> set[str]:
    return {name for move in moves for name in _NEEDLESS_WITH.get(move.name, ())}


def _without_needless(together: Combination) -> Combination:
    needless = _needless_with(together)
    return tuple(move for move in together if move.name not in needless)


def _without_each(found: Mapping[Combination, Reached]) -> list[Combination]:
    """The first combination that fits without each of its moves; none where a part of it fits."""
    fitting = _fitting(found)
    for one in sorted(fitting, key=lambda made: list(Learning).index(learning_of(made))):
        if not any(set(part) < set(one) for part in fitting):
            return [tuple(m for m in one if m is not out) for out in one if len(one) > 1]
    return []


def _on_more_gpus(
    found: Mapping[Combination, Reached],
    moves: Sequence[Move],
    shards: Sequence[Move],
    may_fit: Callable[[Combination], bool],
) -> list[Combination]:
    """The fewest GPUs on which it may fit, with and without checkpointing; then more of them."""
    if any(learning_of(one) is not Learning.TRAINED for one in _fitting(found)):
        return []
    saving = [move for move in moves if move.name == CHECKPOINTING]
    for shard in shards:
        both = [(shard,), (*saving, shard)]
        if may_fit((shard,)) and not any(one in found for one in both):
            return both
    return []


def _fitting(found: Mapping[Combination, Reached]) -> list[Combination]:
    return [one for one, reached in found.items() if reached.rung.fits]
