"""The plan: the ladder of one workload on its own GPU, and the workload on every other GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...answer.plan import GpuOption, Plan
from ...core.errors import InvalidInput
from ...events import Emit, Log
from ...gpus import Gpu
from ...gpus.known import known_gpus
from ...hub import resolve
from ...interface.request import AnalysisRequest
from ...step.building import blaming_the_config
from ...traces.source import TraceSource
from ...traces.workloads import KeptTraces
from ...tracing.lowering import CudaBehaviour, behaviour_of
from ..caveats import gpu_caveats
from ..measured_host import on_measured_host
from ..predicted_analysis import ModelPrediction
from ..requested_gpu import catalogue_gpu
from ..timing.correction import NO_EXPERIENCE, UNCORRECTED, Experience
from .climbing import climb_and_compare
from .gpu_comparison import compared, gpu_option, gpu_today, speed_today
from .model_ladder import ModelClimb
from .room import largest_sibling, longest_sequence, room


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
        climb = ModelClimb(request, gpu, used, traced=traced, correction=correction)
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
    every = every if here is None else every | {here.name: here}
    of_room: dict[str, Callable[[], object]] = (
        {
            _SEQUENCE: partial(longest_sequence, climb),
            _MODEL: partial(largest_sibling, climb),
        }
        if climb
        else {}
    )
    climbed = climb_and_compare(
        climb, [*every], partial(traced.groups, request, every.values()), on_each, emit, of_room
    )
    named = climbed.named
    left = room(climb, climbed.options, named[_SEQUENCE], named[_MODEL]) if climb else None
    name = request.workload.preset.display_name
    found = compared(name, request, here, climbed.options, speed)
    return replace(
        found,
        workload=request.workload,
        ladder=climbed.ladder,
        room=left,
        caveats=[*warned, *found.caveats, *learned, *assumed],
        software=used,
    )


_SEQUENCE, _MODEL = "longest sequence", "largest sibling"


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
