"""Traces a script's training step on fake tensors, on a machine that seems to have the GPU.

Fake tensors have shapes but no values. A script may read values as long as its memory does not
depend on them; where it does, or where the script runs kernels of its own, it cannot be traced, and
the error names the line.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils._python_dispatch import _disable_current_modes

from ..core.errors import EngineError, NotPredictable
from ..gpus import Gpu
from ..traces.batch_rule import LOW
from ..tracing.excerpts import snapshot
from ..tracing.lowering import CudaBehaviour
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import NeedsTwoSamples, Trace, batch_norm_refuses
from .data.loaders import Feeding
from .devices.process_group import processes_joined, wants_launcher
from .devices.sparse import WHY, names_sparse
from .factory import TRACING, Factory, ScriptFailed
from .live import Live
from .machine import pretended_machine
from .phase_peaks import WholeRun
from .process.accelerate_state import fresh_accelerate
from .process.causes import missing_package, wants_network
from .process.steps import ScriptSteps
from .process.unlike_steps import STEPS, unlike
from .program import Program
from .program_trace import begin_trace, find_loaders
from .request import Script
from .trace_report import classes_of, seen, values_read
from .values.largest_values import settle
from .values.placeholders import BeginWith, DependsOnValues, Line, Values, first_that_runs
from .whole_run import follow_run


class CannotTrace(EngineError):
    """The script does something that fake tensors cannot follow, so there is no prediction.

    Attributes:
        reason: Why, without the advice.
        raised: Whether the script raised an error of its own, which it may not at another batch
            size.
    """

    code = "cannot_trace"

    def __init__(self, reason: str, advice: str = "measure it", *, raised: bool = False) -> None:
        self.reason = reason
        self.raised = raised
        super().__init__(
            f"{reason.rstrip('.')}. There is no prediction: {advice} (--gpu local) on a machine "
            "with that GPU"
        )


def trace_script(
    script: Script, batch_size: int, behaviour: CudaBehaviour | None, gpu: Gpu | None = None
) -> Trace:
    """Trace three steps of a script; of a factory, also what it does before.

    Args:
        script: It creates model, optimizer and data, on the GPU or, without one, on the CPU.
        batch_size: Samples per step.
        behaviour: The GPU's; ``None`` traces what the CPU does.
        gpu: The GPU that the script sees; by default one that behaves so.

    Raises:
        CannotTrace: If the script cannot be followed.
        ScriptFailed: If the factory does not return training steps.
        InvalidInput: If there is no such factory, or PyTorch refuses a batch of 1.
    """
    return check_followed(script, follow(script, batch_size, behaviour, gpu)).trace


@dataclass(frozen=True)
class Followed:
    """A script's steps at one batch size, and how they were followed.

    Attributes:
        traced: Trace of the steps, which does not tell what they read.
        values: Values that the script read, and got.
        shows_gpu: Whether it saw the GPU; not if it puts nothing there, and is traced as if all
            that it puts on the CPU were there.
        begin_with: Begins to trace that batch size with other values.
        decided: Lines whose values were chosen so that memory is at its largest.
        alike: Whether other values were tried, and all gave the same.
    """

    traced: Trace
    values: Values
    shows_gpu: bool
    begin_with: BeginWith
    decided: tuple[Line, ...] = ()
    alike: bool = False

    @cached_property
    def trace(self) -> Trace:
        """Trace of the steps."""
        told = values_read(self.values, self.decided)
        return replace(self.traced, caveats=[*self.traced.caveats, *told])


def follow(
    script: Script,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    smallest: int = LOW,
) -> Followed:
    """Trace some steps without knowing what they read; at the smallest batch size, one more."""
    one_more = batch_size == smallest
    for shows_gpu in (True, False) if behaviour is not None else (False,):
        begin_with = partial(
            begin, script, batch_size, behaviour, gpu, shows_gpu, one_more=one_more
        )

        def trace_with(values: Values, begin_with: BeginWith = begin_with) -> Trace:
            return begin_with(values)()

        trace, values = first_that_runs(trace_with)
        if trace.sizes:
            break
    return Followed(trace, values, shows_gpu, begin_with)


def check_followed(script: Script, followed: Followed) -> Followed:
    """The steps with the values that take the most memory; refuses those without a most."""
    try:
        settled = settle(followed.begin_with, followed.traced, followed.values)
    except DependsOnValues as error:
        raise CannotTrace(f"{script.name} cannot be traced without running it: {error}") from error
    if not settled.decided:
        return replace(followed, alike=settled.alike)
    return replace(followed, traced=settled.trace, values=settled.values, decided=settled.decided)


def begin(
    script: Script,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    shows_gpu: bool,
    values: Values,
    *,
    one_more: bool = False,
) -> Callable[[], Trace]:
    """Begin to trace: a program in a process of its own, a factory when the trace is waited for."""
    if isinstance(script, Factory):
        return lambda: _trace(script, batch_size, behaviour, gpu, values, shows_gpu, one_more)
    worded = _worded(script, batch_size)
    traced = begin_trace(script, batch_size, behaviour, gpu, values, shows_gpu, worded, one_more)

    def checked() -> Trace:
        trace = traced()
        _check_whole(trace, script)
        return trace

    return checked


def _worded(script: Script, batch_size: int) -> Callable[[BaseException], EngineError]:
    """Return a function that converts an error of the script into ours."""

    def worded(error: BaseException) -> EngineError:
        if batch_size == 1 and batch_norm_refuses(error):
            return NeedsTwoSamples()
        return _refusal(script, error)

    return worded


def _trace(
    factory: Factory,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    values: Values,
    shows_gpu: bool,
    one_more: bool,
) -> Trace:
    """Trace three steps of the script, with these values."""
    with (
        fresh_accelerate(),
        pretended_machine(behaviour, gpu, values, shows_gpu=shows_gpu) as machine,
        closing(ScriptSteps(factory, batch_size)) as steps,
    ):
        with _disable_current_modes():  # what a module creates outlives the trace
            steps.build("cpu")
        recorder = machine.recorder(steps, batch_size)
        try:
            for move in (steps.begin, *[steps.step] * STEPS):
                recorder.record_step(move)
        except EngineError:
            raise
        except (Exception, SystemExit) as error:
            raise _worded(factory, batch_size)(error) from error
        trace = _with_one_more(recorder, steps) if one_more else recorder.finish()
        trace.tf32 = torch.backends.cuda.matmul.allow_tf32
        trace.optimizers = classes_of(steps.optimizer)
        trace.world_size = processes_joined()
        trace.caveats = [seen(trace, steps.optimizer), *trace.caveats, *machine.caveats]
    if trace.sizes or not machine.shows_gpu:
        _check(steps, trace, factory)
    return trace


def _with_one_more(recorder: MemoryRecorder, steps: ScriptSteps) -> Trace:
    """The trace so far; it says so where the next step needs other memory."""
    trace = snapshot(recorder.trace)
    try:
        recorder.record_step(steps.step)
    except Exception as error:
        trace.caveats.append(f"Step {STEPS + 1} fails with {type(error).__name__}: {error}.")
        return trace
    trace.caveats += unlike(trace, recorder.trace)
    return trace


def _refusal(script: Script, error: BaseException) -> CannotTrace:
    """Why a step cannot be traced, and what to do about it."""
    reason = f"{script.name} cannot be traced without running it"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        reason += f"{script.where(error)}: it depends on a tensor's value ({error})"
        return CannotTrace(reason)
    if isinstance(error, NotPredictable):
        return CannotTrace(f"{reason}{script.where(error)}: {error}")
    if names_sparse(error):
        return CannotTrace(f"{reason}{script.where(error)}: {WHY}")
    if "convert all Tensors to FakeTensors" in str(error):
        reason += f"{script.where(error)}: it uses a tensor that was made before"
        return CannotTrace(reason, "make it there, or measure it")
    if wants_network(error):
        advice = "fetch it once (hf download) or run the script once yourself, as one that is "
        advice += "traced downloads nothing, or measure it"
        return CannotTrace(f"{reason}{script.describe(error)}", advice)
    if package := missing_package(error):
        advice = f"install {package} where memorymark runs (pip install), or measure it"
        return CannotTrace(f"{reason}{script.describe(error)}", advice)
    if wants_launcher(error):
        advice = (
            "say how many processes torchrun starts (WORLD_SIZE=8 memorymark ...), or measure it"
        )
        return CannotTrace(f"{reason}{script.describe(error)}", advice)
    slipped = isinstance(error, _SLIPS) and _raised_by_a_tracer(error)
    if slipped or _OF_CUDA_BUILDS.search(str(error)):
        return CannotTrace(f"{reason}{script.describe(error)}, in what stands in for a GPU here")
    # It is not known whether this would fail on real tensors too.
    advice = "fix that, or, if the script runs by itself, measure it"
    return CannotTrace(f"{reason}{script.describe(error)}", advice, raised=True)


_SLIPS = (AssertionError, AttributeError, LookupError, NotImplementedError)
"""Errors that code does not raise to tell its caller of a mistake."""
_OF_CUDA_BUILDS = re.compile(
    r"'torch\._C' has no attribute '_(?i:cuda|nccl)|Tried to instantiate dummy base class"
)
"""Errors of PyTorch's builds for the CPU, where something asks for the GPU past what we replace."""
_FAKES = Path(fake_tensor.__file__).parent


def _raised_by_a_tracer(error: BaseException) -> bool:
    """Whether it is our code, or that of fake tensors, that failed: the script may be right."""
    frames = traceback.extract_tb(error.__traceback__)
    last = Path(frames[-1].filename) if frames else Path()
    return any(last.is_relative_to(room) for room in (*TRACING, _FAKES))


def _check(steps: ScriptSteps, trace: Trace, script: Script) -> None:
    """Refuse a trace that is not of a whole training step."""
    devices = {parameter.device.type for parameter in steps.model.parameters()}
    if devices - {"cpu"}:
        raise CannotTrace(
            f"{script.name} puts its model on {', '.join(sorted(devices))} while a prediction "
            "runs on the CPU; choose the device inside the factory by torch.cuda.is_available()"
        )
    _check_whole(trace, script)
    if not trace.operations:
        raise ScriptFailed(
            f"a step of {script.name} does nothing with tensors created by the factory; create "
            "model, optimizer and data inside it, not while its module is imported"
        )


def found_loaders(
    program: Program, behaviour: CudaBehaviour | None, gpu: Gpu | None = None
) -> tuple[Program, int]:
    """A program whose batch size is that of its ``DataLoader``, and what that is now.

    Raises:
        InvalidInput: For ``batch_flag``, if no loader feeds its steps, or several that differ.
        ScriptFailed, CannotTrace: As for :func:`trace_script`.
    """

    def find(values: Values) -> Feeding:
        return find_loaders(program, behaviour, gpu, values, partial(_refusal, program))

    found, _ = first_that_runs(find)
    return replace(program, loaders=found.positions), found.batch_size


def follow_script(
    script: Program | Live, batch_size: int, behaviour: CudaBehaviour | None
) -> WholeRun:
    """Follow a script to its evaluation and its checkpoints; see :func:`follow_run`."""
    return follow_run(script, batch_size, behaviour, None, partial(_refusal, script))


def _check_whole(trace: Trace, script: Script) -> None:
    """Refuse steps that train nothing."""
    if trace.operations and "backward" not in (name for _, name in trace.phases):
        raise ScriptFailed(
            f"a step of {script.name} runs no backward pass; it must run a whole training step: "
            "forward, loss, loss.backward(), optimizer"
        )
