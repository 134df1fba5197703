"""The plan: the ladder of one workload on its own GPU, and the workload on every other GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..answer.ladder import Rung, in_order, listed
from ..answer.plan import GpuOption, Plan
from ..core.errors import EngineError, InvalidInput
from ..events import Emit, Log, Stage
from ..gpus import GPUS, Gpu
from ..gpus.known import known_gpus
from ..hub import resolve
from ..interface.request import AnalysisRequest
from ..step.building import blaming_the_config
from ..traces.source import TraceSource
from ..traces.workloads import KeptTraces
from ..tracing.lowering import CudaBehaviour, behaviour_of
from .caveats import gpu_caveats
from .combinations import Combination, Reached, next_combinations
from .correction import NO_EXPERIENCE, UNCORRECTED, Experience
from .gpu_comparison import compared, gpu_option, gpu_today, speed_today
from .ladder import Climb, other_gpus
from .measured_host import on_measured_host
from .moves import moves_for, sharded
from .predicted_analysis import ModelPrediction
from .requested_gpu import catalogue_gpu
from .room import largest_sibling, longest_sequence, room
from .side_by_side import SideBySide, processes_here

Tasks = SideBySide[Combination | frozenset[str] | str, Reached | list[GpuOption] | int | str | None]
"""Combinations of moves, GPUs of some names, and what is looked for by name."""

MAX_TRIED = 16
"""Combinations of moves; each takes seconds."""

_NICENESS = 10
"""Priority of the process: a verdict, which somebody waits for, does not wait for a plan."""


def plan(
    request: AnalysisRequest,
    emit: Emit,
    experience: Experience = NO_EXPERIENCE,
    traced: KeptTraces | None = None,
) -> Plan:
    """Predict the ladder of one workload on its GPU, and the workload on every catalogue GPU.

    Args:
        request: Its GPU is the one used today; the assumed hours of a run and the assumed price
            are that GPU's. With ``local`` there is no such GPU, so no cost of a run, and no ladder.
        emit: Receives log lines, and the rungs of the ladder as they are found.
        experience: The steps that were measured before.
        traced: Traces the workload; by default anew.

    Raises:
        InvalidInput: If a price is set without a GPU, or the config does not give a model.
    """
    request = replace(request, workload=resolve(request.workload))
    with blaming_the_config(request.workload):
        return _plan(request, emit, experience, traced or KeptTraces())


def _plan(request: AnalysisRequest, emit: Emit, experience: Experience, traced: KeptTraces) -> Plan:
    here = gpu_today(request)
    used = request.workload.versions_here
    warned = request.workload.software_caveats
    for caveat in warned:
        emit(Log(caveat, "warning"))
    assumed = []
    if here is not None or request.workload.optimizer.spec.bitsandbytes:
        assumed.append(
            "The kernels of bitsandbytes' AdamW are assumed to be bound by memory bandwidth, with "
            "one launch per parameter. bitsandbytes also waits for each launch, which is not "
            "predicted."
        )
    correction = UNCORRECTED if here is None else experience.of(request.workload, here.name)
    climb, learned = None, []
    if here is not None:
        gpu = catalogue_gpu(request)
        if correction.of_host:
            traces = traced.of(request, behaviour_of(gpu), lambda _: None)
            gpu, correction = on_measured_host(gpu, request, correction, traces)
        here = replace(here, launch_seconds=gpu.launch_seconds, launch_range=gpu.launch_range)
        climb = Climb(request, gpu, traced, correction, used)
        if request.current_batch_size is None:
            climb = climb.starting()
            request = climb.request
        learned = [
            *gpu_caveats(gpu),
            *correction.caveats(request.known_batch_size),
        ]
    predictions = _Predictions(request, experience, traced)
    speed = None if here is None else speed_today(predictions.on(here))
    on_each = partial(_options, request, here, predictions, speed)
    every = known_gpus(request.launch_microseconds)
    gpus = (every if here is None else every | {here.name: here}).values()
    rungs, options, named = _found(climb, partial(traced.groups, request, gpus), on_each, emit)
    left = room(climb, options, named[_SEQUENCE], named[_MODEL]) if climb else None
    name = request.workload.preset.display_name
    found = compared(name, request, here, options, speed)
    return replace(
        found,
        workload=request.workload,
        ladder=in_order(rungs) if rungs else [],
        room=left,
        caveats=[*warned, *found.caveats, *learned, *assumed],
        software=used,
    )


_SEQUENCE, _MODEL = "longest sequence", "largest sibling"


def _found(
    climb: Climb | None,
    groups: Callable[[], list[list[Gpu]]],
    on_each: Callable[[Sequence[Gpu]], list[GpuOption]],
    emit: Emit,
) -> tuple[list[Rung], list[GpuOption], dict[str, Any]]:
    """The rungs on the current GPU, every GPU, and what its room is for, found side by side.

    Args:
        climb: ``None`` without a current GPU.
        groups: Every GPU, divided among processes once the workload was traced for its own.
        on_each: Predicts the workload on some GPUs.
        emit: Receives the rungs as they are found.
    """
    tasks: Tasks = SideBySide(processes_here(), _NICENESS)
    rungs = _Rungs(climb, tasks, emit) if climb else None
    for some in groups():
        tasks.add(frozenset(gpu.name for gpu in some), partial(on_each, some))
    if climb is not None:
        tasks.add(_SEQUENCE, partial(longest_sequence, climb))
        tasks.add(_MODEL, partial(largest_sibling, climb))
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
                if rungs is not None and len(options) == len(GPUS):
                    rungs.take_gpus([options[gpu] for gpu in GPUS])
            elif isinstance(result, Reached) and isinstance(key, tuple) and rungs is not None:
                rungs.take(key, result)
            elif isinstance(key, str):
                named[key] = result
    return rungs.shown if rungs else [], [options[gpu] for gpu in GPUS], named


class _Rungs:
    """The rungs found so far: a round of combinations, then the next one that it calls for.

    Args:
        climb: Predicts a combination.
        tasks: Where the combinations are predicted.
        emit: Receives the rungs that may be shown.
    """

    def __init__(self, climb: Climb, tasks: Tasks, emit: Emit) -> None:
        self._climb, self._tasks, self._emit = climb, tasks, emit
        self._moves, self._shards = moves_for(climb.request, climb.gpu), sharded(climb.request)
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
        request, today = self._climb.request, self._climb.today
        for rung in other_gpus(request, options, today.samples_per_second):
            self._show(rung)

    def _show(self, rung: Rung) -> None:
        self.shown.append(rung)
        self._emit(rung)


def _options(
    request: AnalysisRequest,
    here: Gpu | None,
    predictions: _Predictions,
    speed_today: float | None,
    gpus: Sequence[Gpu],
) -> list[GpuOption]:
    """The workload on some GPUs."""
    return [gpu_option(request, here, gpu, predictions.on(gpu), speed_today) for gpu in gpus]


class _Predictions:
    """Predictions of one workload on one GPU after another.

    Args:
        request: The request for the workload.
        experience: The steps that were measured before.
        traced: Traces the workload.

    Attributes:
        sources: The traces so far, by the behaviour of the GPUs.
    """

    def __init__(
        self, request: AnalysisRequest, experience: Experience, traced: KeptTraces
    ) -> None:
        self._request, self._experience, self._traced = request, experience, traced
        self.sources: dict[CudaBehaviour, TraceSource] = {}

    def on(self, gpu: Gpu) -> ModelPrediction | InvalidInput:
        """Predictions on a GPU, or why the workload cannot run there."""
        try:
            there = replace(self._request, gpu=gpu.name)
        except InvalidInput as error:
            return error
        behaviour = behaviour_of(gpu)
        if behaviour not in self.sources:
            self.sources[behaviour] = self._traced.of(self._request, behaviour, lambda _: None)
        correction = self._experience.of(self._request.workload, gpu.name)
        return ModelPrediction(there, gpu, self.sources[behaviour], correction)
