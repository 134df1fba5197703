"""Traces of a script at every batch size, from as few as three."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ..core.errors import EngineError, InvalidInput
from ..events import Emit, Log
from ..gpus import Gpu
from ..traces.batch_rule import HIGH, LOW
from ..traces.source import ByMicroBatches, TraceSource
from ..tracing.every_batch import AffineTrace, NotAffine, QuadraticTrace, one_sample
from ..tracing.lowering import CudaBehaviour, cuda_behaviour
from ..tracing.trace import Trace
from .asked_batch import trace_from_the_asked
from .data.batch_constant import BatchConstant, batch_constant
from .each_size import EachSize
from .factory import Factory, ScriptFailed
from .program import Program
from .request import Script, ScriptRequest
from .trace import CannotTrace, found_loaders, trace_script
from .trace_report import on_the_host

_CHECKED = 67
"""The batch size at which a computed trace is checked against a real one. It is not a multiple of
the sizes that code splits a batch by, and lies above most of them. A larger one would need real
memory where a factory creates its data without PyTorch."""

_ANY = (HIGH, _CHECKED)
_EVEN = (2 * LOW, _CHECKED + 1)
"""Batch sizes of a line where no odd batch is taken, as by mixup or contrastive pairs."""


def trace_script_at_every_batch_size(
    script: Script,
    behaviour: CudaBehaviour | None,
    warn: Callable[[str], None],
    gpu: Gpu | None = None,
    asked: int | None = None,
) -> TraceSource:
    """A few traces that give every batch size from 2 up, or one trace for each where that fails.

    The smallest ones are quick, and tell most of all. A script may take no such batch: it divides a
    global one, or fills a queue with whole batches. Then the one that was asked for is traced, and
    others near it.

    An unknown script may do anything with its batch: compare each sample with every other, halve
    it, split it. So what two traces predict is checked against one more.

    Each of the three gets other placeholders where it reads values. If they lie on a line all the
    same, memory does not depend on the values: nothing that does would grow from one to the next
    just as the batch does. Where they do not lie on a line, values are checked at one batch size,
    which holds for the others as far as their steps are alike.

    Args:
        script: The script to trace.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence if every batch size has to be traced, or only even ones can be.
        gpu: The GPU that the script sees; by default one that behaves so.
        asked: The batch size that was asked for, if any.

    Raises:
        ScriptFailed: If the batch size makes no difference. Also what :func:`trace_script` raises.
    """
    warned: list[str] = []
    try:
        found = _trace_from_the_smallest(script, behaviour, warned.append, gpu)
    except (CannotTrace, ScriptFailed) as error:
        if asked is None or asked <= LOW or (isinstance(error, CannotTrace) and not error.raised):
            raise
        return trace_from_the_asked(script, behaviour, warn, gpu, asked)
    for one in warned:
        warn(one)
    return found


def _trace_from_the_smallest(
    script: Script,
    behaviour: CudaBehaviour | None,
    warn: Callable[[str], None],
    gpu: Gpu | None,
) -> ScriptTraces:
    """Traces from those of the smallest batches."""
    each = EachSize(script, behaviour, gpu, LOW, beside=_ANY)
    multiple, second, sizes = 1, HIGH, _ANY
    only_even: list[str] = []
    line = each.line(sizes)
    if line is None and not each.runs(HIGH):
        multiple, second, sizes = 2, 2 * LOW, _EVEN
        only_even = [f"{script.name} takes no batch of {HIGH}, so only even ones are tried."]
        warn(only_even[0])
        line = each.line(sizes)
    if line is None and each.settle():
        line = each.line(sizes)
    low = each.low.trace
    high = each.at(second) if line is None else line.high
    if low.sizes == high.sizes:
        raise ScriptFailed(
            f"a step of {script.name} creates the same tensors at batch {LOW} and {second}; "
            f"{script.wants_data}"
        )
    rule: TraceSource = each if line is None else line
    if line is None:
        try:
            rule = _checked_rule(each, multiple)
        except NotAffine as error:
            warn(f"{error}; tracing each batch size separately")
    return ScriptTraces(each, rule, low, high, multiple, [*low.caveats, *only_even])


@dataclass(eq=False)
class ScriptTraces:
    """The traces of a script at every batch size, with what was found out about it beside them.

    Attributes:
        each: Traces one batch size by itself.
        rule: Gives all from 2 up; ``each`` where nothing else does.
        low, high: Two traces, between and beyond which the bytes on the host lie on a line.
        multiple: Only multiples of this are taken.
        caveats: Caveats of every trace.
    """

    each: EachSize
    rule: TraceSource = field(repr=False)
    low: Trace = field(repr=False)
    high: Trace = field(repr=False)
    multiple: int
    caveats: list[str]

    def at(self, batch_size: int) -> Trace:
        told = replace(
            self._traced(batch_size),
            host_bytes=_host_bytes(self.low, self.high, batch_size),
            micro_batches=self.low.micro_batches,
            batch_multiple=self.multiple,
            move_lines=self.low.move_lines,
        )
        return replace(told, caveats=[*self.caveats, *on_the_host(told)])

    def _traced(self, batch_size: int) -> Trace:
        if batch_size % self.multiple:
            return self.each.at(batch_size)  # which fails with its own line
        return self._single if batch_size == 1 else self.rule.at(batch_size)

    @cached_property
    def _single(self) -> Trace:
        return one_sample(self.each.at, self.low)


def _host_bytes(low: Trace, high: Trace, batch_size: int) -> int:
    """Bytes on the host at a batch size, on the line through those at two."""
    per_sample = (high.host_bytes - low.host_bytes) / (high.batch_size - low.batch_size)
    return round(low.host_bytes + per_sample * (batch_size - low.batch_size))


def _checked_rule(each: EachSize, multiple: int) -> AffineTrace | QuadraticTrace:
    """Traces that are linear or quadratic in the batch size and give one more as it is.

    Args:
        each: The trace of a batch size.
        multiple: Only multiples of this are taken.

    Raises:
        NotAffine: If neither are.
    """
    sizes = map(each.at, _ANY if multiple == 1 else _EVEN)
    traces: AffineTrace | QuadraticTrace = AffineTrace(each.at(LOW), high := next(sizes))
    checked = next(sizes)  # only now, as it may take long
    AffineTrace(high, checked)  # refuses unlike steps
    if traces.at(checked.batch_size).sizes != checked.sizes and multiple == 1:
        traces = QuadraticTrace(each.at(LOW), high, each.at(HIGH + 1))
    if traces.at(checked.batch_size).sizes != checked.sizes:
        raise NotAffine("the tensors of a step grow neither by the batch nor by its square")
    return traces


def trace_request(
    request: ScriptRequest, behaviour: CudaBehaviour | None, warn: Callable[[str], None]
) -> TraceSource:
    """The traces of a request's script, which may accumulate at some batch sizes only.

    Args:
        request: The request to analyse.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence if every batch size has to be traced.
    """
    return ByMicroBatches(request, partial(_trace_accumulating, request, behaviour, warn))


def of_sizes_taken(request: ScriptRequest, traces: TraceSource) -> ScriptRequest:
    """The request, for those of its batch sizes that the script takes."""
    taken = traces.at(request.known_batch_size).batch_multiple
    multiple = math.lcm(request.batch_multiple, taken)
    return replace(request, batch_multiple=multiple, multiple_taken=taken)


class TracesOnGpus:
    """The traces of a request's script on one GPU after another; one for each compute capability.

    Args:
        request: The request to analyse.

    Attributes:
        found: The traces so far, or why there are none, by compute capability.
    """

    def __init__(self, request: ScriptRequest) -> None:
        self._request = request
        self.found: dict[float, TraceSource | EngineError] = {}

    def on(self, gpu: Gpu, emit: Emit) -> TraceSource:
        """The traces on a GPU; raises what the script or its trace does there."""
        found = self._on(gpu.compute_capability, emit)
        if isinstance(found, EngineError):
            raise found
        return found

    def on_first(self, gpus: Sequence[Gpu], emit: Emit) -> TraceSource:
        """The traces on the first of some GPUs where it can be traced.

        Raises:
            ScriptFailed, CannotTrace: If it cannot on any; the error is that of the first.
        """
        for gpu in gpus:
            found = self._on(gpu.compute_capability, emit)
            if not isinstance(found, EngineError):
                return found
        return self.on(gpus[0], emit)

    def _on(self, capability: float, emit: Emit) -> TraceSource | EngineError:
        if capability not in self.found:
            self.found[capability] = self._trace(capability, emit)
        return self.found[capability]

    def _trace(self, capability: float, emit: Emit) -> TraceSource | EngineError:
        request = self._request
        emit(Log(f"Tracing {request.script.name} for compute capability {capability}"))
        behaviour = cuda_behaviour(capability)
        traces = trace_request(request, behaviour, lambda message: emit(Log(message, "warning")))
        try:
            traces.at(request.known_batch_size)
        except EngineError as error:  # a script may refuse a GPU, such as one without bf16
            return error
        return traces


def _trace_accumulating(
    request: ScriptRequest,
    behaviour: CudaBehaviour | None,
    warn: Callable[[str], None],
    micro_batches: int,
) -> TraceSource:
    script = replace(request.script, gradient_accumulation=micro_batches)
    if micro_batches > 1 and isinstance(script, Factory):
        _check_micro_batches(script, behaviour)
    asked = request.current_batch_size
    return trace_script_at_every_batch_size(script, behaviour, warn, asked=asked)


def _check_micro_batches(factory: Factory, behaviour: CudaBehaviour | None) -> None:
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


def told_by_loaders(
    request: ScriptRequest, behaviour: CudaBehaviour | None, emit: Emit
) -> ScriptRequest:
    """The request with facts from a program's loaders: which feed it, and its batch size today.

    Where they do not tell it, one number in its file with the name of a batch size is taken for it.

    Args:
        request: The request to analyse.
        behaviour: Of the GPU that the program sees; ``None`` for a machine without one.
        emit: Receives a log line.

    Raises:
        InvalidInput: For ``batch_flag`` or ``current_batch_size``, if the loaders do not show it.
        ScriptFailed, CannotTrace: If the program cannot be followed to its first step.
    """
    program = request.script
    if not isinstance(program, Program) or program.loaders or program.by_constant:
        return request
    if request.batch_given and not program.automatic:
        return request
    try:
        fed, batch_size = found_loaders(program, behaviour)
    except InvalidInput as error:
        if program.automatic:
            constant = batch_constant(program.path)
            if constant is None:
                raise
            return _with_constant(request, program, constant, emit)
        wanted = "no DataLoader tells the one that the script uses today; write it here"
        raise InvalidInput({"current_batch_size": wanted}) from error
    emit(Log(f"{program.name} loads batches of {batch_size:,} now"))
    own = request.current_batch_size if request.batch_given else batch_size
    script = fed if program.automatic else program
    return replace(request, script=script, batch_given=True, current_batch_size=own)


def _with_constant(
    request: ScriptRequest, program: Program, constant: BatchConstant, emit: Emit
) -> ScriptRequest:
    """The request for a program whose batch size is a number in its file."""
    emit(Log(f"{program.name} sets its batch size itself: {constant}"))
    own = request.current_batch_size if request.batch_given else constant.value
    script = replace(program, by_constant=True)
    return replace(request, script=script, batch_given=True, current_batch_size=own)
