"""Traces a script's training step on fake tensors, on a machine that seems to have the GPU.

Fake tensors have shapes but no values. A script may read values as long as its memory does not
depend on them; where it does, or where the script runs kernels of its own, it cannot be traced, and
the error names the line.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import EngineError
from ..gpus import Gpu
from ..prediction.tracer import HIGH, LOW, TraceAt
from ..prediction.traces import by_accumulation
from ..tracing.lowering import CudaBehaviour
from ..tracing.recorder import MemoryRecorder
from ..tracing.recurrent import NotPredictable
from ..tracing.trace import (
    AffineTrace,
    NeedsTwoSamples,
    NotAffine,
    QuadraticTrace,
    Trace,
    batch_norm_refuses,
    one_sample,
)
from .factory import Factory, ScriptFailed
from .loaders import Feeding
from .machine import fresh_accelerate, pretended_machine
from .placeholders import BeginWith, DependsOnValues, Values, check_values, first_that_runs
from .program import Program
from .program_trace import begin_trace, find_loaders
from .request import Script, ScriptRequest
from .seen import on_the_host, seen, values_read
from .steps import ScriptSteps
from .unlike_steps import STEPS, unlike

_CHECKED = 67
"""The batch size at which a computed trace is checked against a real one. It is not a multiple of
the sizes that code splits a batch by, and lies above most of them. A larger one would need real
memory where a factory creates its data without PyTorch."""


class CannotTrace(EngineError):
    """The script does something that fake tensors cannot follow, so there is no prediction.

    Attributes:
        reason: Why, without the advice.
    """

    code = "cannot_trace"

    def __init__(self, reason: str, advice: str = "measure it") -> None:
        self.reason = reason
        super().__init__(
            f"{reason.rstrip('.')}. There is no prediction: {advice} (--gpu local) on a machine "
            "with that GPU"
        )


def trace_script(
    factory: Script, batch_size: int, behaviour: CudaBehaviour | None, gpu: Gpu | None = None
) -> Trace:
    """Trace the factory, then three of its steps.

    Args:
        factory: It creates model, optimizer and data, on the GPU or, without one, on the CPU.
        batch_size: Samples per step.
        behaviour: The GPU's; ``None`` traces what the CPU does.
        gpu: What the script sees of the GPU; by default one that behaves so.

    Raises:
        CannotTrace: If the script cannot be followed.
        ScriptFailed: If the factory does not return training steps.
        InvalidInput: If there is no such factory, or PyTorch refuses a batch of 1.
    """
    followed = _follow(factory, batch_size, behaviour, gpu)
    _check_followed(factory, followed)
    return followed.trace


@dataclass(frozen=True)
class _Followed:
    """A script's steps at one batch size, and how they were followed.

    Attributes:
        trace: Of the steps.
        values: What the script read, and got.
        shows_gpu: Whether it saw the GPU; not if it puts nothing there, and is traced as if all
            that it puts on the CPU were there.
        begin_with: Begins to trace that batch size with other values.
    """

    trace: Trace
    values: Values
    shows_gpu: bool
    begin_with: BeginWith


def _follow(
    factory: Script, batch_size: int, behaviour: CudaBehaviour | None, gpu: Gpu | None
) -> _Followed:
    """Trace some steps without knowing what they read."""
    for shows_gpu in (True, False) if behaviour is not None else (False,):
        begin_with = partial(_begin, factory, batch_size, behaviour, gpu, shows_gpu)

        def trace_with(values: Values, begin_with: BeginWith = begin_with) -> Trace:
            return begin_with(values)()

        trace, values = first_that_runs(trace_with)
        if trace.sizes:
            break
    told = replace(trace, caveats=[*trace.caveats, *values_read(values)])
    return _Followed(told, values, shows_gpu, begin_with)


def _check_followed(factory: Script, followed: _Followed) -> None:
    """Refuse steps whose memory depends on values."""
    try:
        check_values(followed.begin_with, followed.trace, followed.values)
    except DependsOnValues as error:
        raise CannotTrace(f"{factory.name} cannot be traced without running it: {error}") from error


def _begin(
    factory: Script,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    shows_gpu: bool,
    values: Values,
) -> Callable[[], Trace]:
    """Begin to trace: a program in a process of its own, a factory when the trace is waited for."""
    if isinstance(factory, Factory):
        return lambda: _trace(factory, batch_size, behaviour, gpu, values, shows_gpu)
    worded, one_more = _worded(factory, batch_size), batch_size == LOW
    traced = begin_trace(factory, batch_size, behaviour, gpu, values, shows_gpu, worded, one_more)

    def checked() -> Trace:
        trace = traced()
        _check_whole(trace, factory)
        return trace

    return checked


def _worded(script: Script, batch_size: int) -> Callable[[BaseException], EngineError]:
    """Words an error of the script."""

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
        trace = _with_one_more(recorder, steps) if batch_size == LOW else recorder.trace
        trace.tf32 = torch.backends.cuda.matmul.allow_tf32
        trace.caveats = [seen(trace, steps.optimizer), *trace.caveats, *machine.caveats]
    if trace.sizes or not machine.shows_gpu:
        _check(steps, trace, factory)
    return trace


def _with_one_more(recorder: MemoryRecorder, steps: ScriptSteps) -> Trace:
    """The trace so far; it says so where the next step needs other memory."""
    trace = copy.deepcopy(recorder.trace)
    try:
        recorder.record_step(steps.step)
    except Exception as error:
        trace.caveats.append(f"Step {STEPS + 1} fails with {type(error).__name__}: {error}.")
        return trace
    trace.caveats += unlike(trace, recorder.trace)
    return trace


def trace_script_at_every_batch_size(
    factory: Script,
    behaviour: CudaBehaviour | None,
    warn: Callable[[str], None],
    gpu: Gpu | None = None,
) -> TraceAt:
    """A few traces that give every batch size from 2 up, or one trace for each where that fails.

    An unknown script may do anything with its batch: compare each sample with every other, halve
    it, split it. So what two or three traces predict is checked against one more. That memory does
    not depend on values is checked at one batch size, and holds for the others as far as their
    steps are alike.

    Args:
        factory: The script's.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence if every batch size has to be traced.
        gpu: What the script sees of the GPU; by default one that behaves so.

    Raises:
        ScriptFailed: If the batch size makes no difference. Also what :func:`trace_script` raises.
    """
    low = _follow(factory, LOW, behaviour, gpu)

    def begin(batch_size: int) -> Callable[[], Trace]:
        values = Values(low.values.placeholders)
        return _begin(factory, batch_size, behaviour, gpu, low.shows_gpu, values)

    # They run beside those that check the values.
    begun = {size: begin(size) for size in (HIGH, _CHECKED)}

    @cache
    def each(batch_size: int) -> Trace:
        if batch_size == LOW:
            return low.trace
        return (begun.pop(batch_size, None) or begin(batch_size))()

    _check_followed(factory, low)

    try:
        high = each(HIGH)
        even_only = False
    except CannotTrace:
        high = each(2 * LOW)
        even_only = True
    if each(LOW).sizes == high.sizes:
        raise ScriptFailed(
            f"a step of {factory.name} creates the same tensors at batch {LOW} and "
            f"{high.batch_size}; {factory.wants_data}"
        )
    at: TraceAt = each
    try:
        if even_only:
            raise NotAffine(f"{factory.name} takes no batch of {HIGH}")
        at = _checked_traces(each(_CHECKED), each).at
    except NotAffine as error:
        warn(f"{error}; tracing each batch size separately")
    single = cache(lambda: one_sample(each, each(LOW)))

    def at_batch(batch_size: int) -> Trace:
        trace = single() if batch_size == 1 else at(batch_size)
        told = replace(
            trace,
            host_bytes=_host_bytes(low.trace, high, batch_size),
            micro_batches=low.trace.micro_batches,
        )
        return replace(told, caveats=[*low.trace.caveats, *on_the_host(told)])

    return at_batch


def _host_bytes(low: Trace, high: Trace, batch_size: int) -> int:
    """Bytes on the host at a batch size, on the line through those at two."""
    per_sample = (high.host_bytes - low.host_bytes) / (high.batch_size - low.batch_size)
    return round(low.host_bytes + per_sample * (batch_size - low.batch_size))


def _checked_traces(checked: Trace, each: TraceAt) -> AffineTrace | QuadraticTrace:
    """Traces that are linear or quadratic in the batch size and reproduce ``checked``.

    Raises:
        NotAffine: If neither does.
    """
    traces: AffineTrace | QuadraticTrace = AffineTrace(each(LOW), each(HIGH))
    AffineTrace(each(HIGH), checked)  # refuses unlike steps
    if traces.at(checked.batch_size).sizes != checked.sizes:
        traces = QuadraticTrace(each(LOW), each(HIGH), each(HIGH + 1))
    if traces.at(checked.batch_size).sizes != checked.sizes:
        raise NotAffine("the tensors of a step grow neither by the batch nor by its square")
    return traces


def trace_request(
    request: ScriptRequest, behaviour: CudaBehaviour | None, warn: Callable[[str], None]
) -> TraceAt:
    """The traces of a request's factory, which may accumulate at some batch sizes only.

    Args:
        request: What to analyse.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence if every batch size has to be traced.
    """

    def traces(accumulation: int) -> TraceAt:
        factory = replace(request.script, gradient_accumulation=accumulation)
        if accumulation > 1 and isinstance(factory, Factory):
            _check_micro_batches(factory, behaviour)
        return trace_script_at_every_batch_size(factory, behaviour, warn)

    return by_accumulation(request, traces)


def _check_micro_batches(factory: Script, behaviour: CudaBehaviour | None) -> None:
    """Refuse a script whose memory with many micro-batches does not follow from that with two."""
    one_more = replace(factory, gradient_accumulation=factory.gradient_accumulation + 1)
    peak, more = (
        trace_script(f, LOW, behaviour).peak_by_category()[0] for f in (factory, one_more)
    )
    if peak != more:
        raise CannotTrace(
            f"a step of {factory.name} uses {more - peak:+,} bytes with one more micro-batch to "
            "accumulate, so it keeps something of each"
        )


def _refusal(factory: Script, error: BaseException) -> CannotTrace:
    """Why a step cannot be traced, and what to do about it."""
    reason = f"{factory.name} cannot be traced without running it"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        reason += f"{factory.where(error)}: it depends on a tensor's value ({error})"
        return CannotTrace(reason)
    if isinstance(error, NotPredictable):
        return CannotTrace(f"{reason}{factory.where(error)}: {error}")
    if "convert all Tensors to FakeTensors" in str(error):
        reason += f"{factory.where(error)}: it uses a tensor that was made before"
        return CannotTrace(reason, "make it there, or measure it")
    # It is not known whether this would fail on real tensors too.
    advice = "fix that, or, if the script runs by itself, measure it"
    return CannotTrace(f"{reason}{factory.describe(error)}", advice)


def _check(steps: ScriptSteps, trace: Trace, factory: Script) -> None:
    """Refuse a trace that is not of a whole training step."""
    devices = {parameter.device.type for parameter in steps.model.parameters()}
    if devices - {"cpu"}:
        raise CannotTrace(
            f"{factory.name} puts its model on {', '.join(sorted(devices))} while a prediction "
            "runs on the CPU; choose the device inside the factory by torch.cuda.is_available()"
        )
    _check_whole(trace, factory)
    if not trace.operations:
        raise ScriptFailed(
            f"a step of {factory.name} does nothing with tensors created by the factory; create "
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


def _check_whole(trace: Trace, script: Script) -> None:
    """Refuse steps that train nothing."""
    if trace.operations and "backward" not in (name for _, name in trace.phases):
        raise ScriptFailed(
            f"a step of {script.name} runs no backward pass; it must run a whole training step: "
            "forward, loss, loss.backward(), optimizer"
        )
