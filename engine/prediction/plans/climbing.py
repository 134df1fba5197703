"""Everything of a plan, found side by side: the rungs on the current GPU, and every other GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...answer.ladder import Rung, best_of, in_order, listed
from ...answer.plan import GpuOption
from ...core.errors import EngineError
from ...events import Emit, Log, Stage
from ...gpus import Gpu
from .combinations import Combination, Reached, next_combinations
from .gpu_rungs import other_gpus
from .ladder import AnyClimb
from .side_by_side import SideBySide, processes_here

Tasks = SideBySide[Combination | frozenset[str] | str, Any]
"""Combinations of moves, GPUs of some names, and what is looked for by name."""

MAX_TRIED = 16
"""Combinations of moves; each takes seconds."""

_NICENESS = 10
"""Priority of the process: a verdict, which somebody waits for, does not wait for a plan."""


@dataclass(frozen=True)
class Climbed:
    """The findings for a plan.

    Attributes:
        ladder: The best rungs, in order; empty without a current GPU.
        options: Every GPU of the catalogue, in its order.
        named: Whatever else was looked for, by name.
    """

    ladder: list[Rung]
    options: list[GpuOption]
    named: dict[str, Any] = field(default_factory=dict)


def climb_and_compare(
    climb: AnyClimb | None,
    names: Collection[str],
    groups: Callable[[], Iterable[Sequence[Gpu]]],
    on_each: Callable[[Sequence[Gpu]], list[GpuOption]],
    emit: Emit,
    more: Mapping[str, Callable[[], Any]] | None = None,
) -> Climbed:
    """Find the rungs on the current GPU, every GPU, and more beside them.

    Args:
        climb: ``None`` without a current GPU.
        names: Those of every GPU, in the order of the catalogue.
        groups: Every GPU, divided among processes once the subject was traced for its own.
        on_each: Predicts the subject on some GPUs.
        emit: Receives the rungs as they are found.
        more: What else to find, by name.
    """
    tasks: Tasks = SideBySide(processes_here(), _NICENESS)
    rungs = _Rungs(climb, tasks, emit) if climb else None
    for some in groups():
        tasks.add(frozenset(gpu.name for gpu in some), partial(on_each, some))
    for name, task in (more or {}).items():
        tasks.add(name, task)
    options: dict[str, GpuOption] = {}
    named: dict[str, Any] = {}
    with tasks:
        for key, result in tasks.results():
            if isinstance(result, EngineError):
                if not isinstance(key, tuple) or rungs is None:
                    raise result
                rungs.fail(key, str(result))
            elif isinstance(result, list):
                options |= {option.gpu: option for option in result}
                if rungs is not None and len(options) == len(names):
                    rungs.take_gpus([options[gpu] for gpu in names])
            elif isinstance(result, Reached) and isinstance(key, tuple) and rungs is not None:
                rungs.take(key, result)
            elif isinstance(key, str):
                named[key] = result
    ladder = in_order(rungs.shown) if rungs else []
    return Climbed(ladder, [options[gpu] for gpu in names], named)


class _Rungs:
    """The rungs found so far: a round of combinations, then the next one that it calls for.

    Args:
        climb: Predicts a combination.
        tasks: Where the combinations are predicted.
        emit: Receives the rungs that may be shown.
    """

    def __init__(self, climb: AnyClimb, tasks: Tasks, emit: Emit) -> None:
        self._climb, self._tasks, self._emit = climb, tasks, emit
        self._moves, self._shards = climb.moves(), climb.shards()
        self._waiting: set[Combination] = {()}
        self._found: dict[Combination, Reached] = {}
        self.shown: list[Rung] = []
        self.take((), climb.reach(()))  # in this process, which keeps its traces for the others

    def take(self, moves: Combination, reached: Reached) -> None:
        """Take what was found of a combination, and start the next round after the last one."""
        self._found[moves] = reached
        if reached.rung.fits or len(moves) < 2:
            self._show(reached.rung)
        if reached.kept is not None:
            self._show(reached.kept)
        self._waiting.remove(moves)
        if not self._waiting and len(self._found) <= MAX_TRIED:
            self._start_next_round()
        tried, known = len(self._found), len(self._found) + len(self._waiting)
        self._emit(Stage("advice", tried / known, tried, known))
        if tried == known:
            ladder = in_order(self.shown)
            best = [best_of(ladder, keeps_global_batch=keeps) for keeps in (True, False)]
            for rung in filter(None, best):  # the GPUs may take longer than all before
                self._emit(Log(rung.decision))
            self._emit(Log("Comparing the catalogue GPUs"))

    def _start_next_round(self) -> None:
        climb = self._climb
        following = next_combinations(self._found, self._moves, self._shards, climb.may_fit)
        self._waiting = set(following)
        for one in reversed(following):
            names = listed([move.name for move in one])
            self._emit(Log(f"Trying {names}"))
            self._tasks.add(one, partial(climb.reach, one), first=True)

    def fail(self, moves: Combination, why_not: str) -> None:
        """Take that a combination could not be predicted, as where host memory ran out."""
        self.take(moves, Reached(self._climb.unreached(moves, why_not), applies=False))

    def take_gpus(self, options: Sequence[GpuOption]) -> None:
        """Take what was found of every GPU."""
        for rung in other_gpus(self._climb, options):
            self._show(rung)

    def _show(self, rung: Rung) -> None:
        self.shown.append(rung)
        self._emit(rung)
