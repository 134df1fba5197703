"""Traces a script's training step on fake tensors, with CUDA's behaviour on top.

Fake tensors have shapes but no values. A script that reads values (``.item()``, a branch on a loss)
or runs kernels of its own cannot be traced; the error then names the line.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)

from ..errors import EngineError
from ..prediction.tracer import HIGH, LOW, TraceAt, fake_device
from ..prediction.traces import by_accumulation
from ..tracing.lowering import CudaBehaviour, CudaTemporaries
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
from .request import ScriptRequest
from .steps import ScriptSteps

_CHECKED = 67
"""The batch size at which a computed trace is checked against a real one. It is not a multiple of
the sizes that code splits a batch by, and lies above most of them. A larger one would need real
memory where a factory creates its data without PyTorch."""

_STEPS = 3
"""Gradients may live on into the next step, so the third is the first that starts like all later
ones."""

_CPU_ONLY = "(?s).*CUDA is not available"
_FAKE_TENSORS_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class CannotTrace(EngineError):
    """The script does something that fake tensors cannot follow, so there is no prediction.

    Attributes:
        reason: Why, without the advice.
    """

    code = "cannot_trace"

    def __init__(self, reason: str, advice: str = "measure it") -> None:
        self.reason = reason
        super().__init__(
            f"{reason}. There is no prediction: {advice} (--gpu local) on a machine with that GPU"
        )


def trace_script(factory: Factory, batch_size: int, behaviour: CudaBehaviour | None) -> Trace:
    """Trace the factory, then three of its steps.

    Args:
        factory: It must create model, optimizer and data on the CPU where there is no GPU.
        batch_size: Samples per step.
        behaviour: The GPU's; ``None`` traces what the CPU does.

    Raises:
        CannotTrace: If the script cannot be followed.
        ScriptFailed: If the factory does not return training steps.
        InvalidInput: If there is no such factory, or PyTorch refuses a batch of 1.
    """
    with _no_gpu_in_sight(), closing(ScriptSteps(factory, batch_size)) as steps:
        steps.build("cpu")
        with fake_device(behaviour), _movable_modules(), _copies(), ExitStack() as on_cuda:
            temporaries = None
            if behaviour is not None:
                temporaries = CudaTemporaries(behaviour)
                on_cuda.enter_context(_optimizers_as_on_cuda())
            recorder = MemoryRecorder(steps, batch_size, temporaries)
            try:
                for move in (steps.begin, *[steps.step] * _STEPS):
                    recorder.record_step(move)
            except EngineError:
                raise
            except (Exception, SystemExit) as error:
                if batch_size == 1 and batch_norm_refuses(error):
                    raise NeedsTwoSamples from error
                raise _refusal(factory, error) from error
        _check(steps, recorder, factory)
        return recorder.trace


def trace_script_at_every_batch_size(
    factory: Factory, behaviour: CudaBehaviour | None, warn: Callable[[str], None]
) -> TraceAt:
    """A few traces that give every batch size from 2 up, or one trace for each where that fails.

    An unknown script may do anything with its batch: compare each sample with every other, halve
    it, split it. So what two or three traces predict is checked against one more.

    Args:
        factory: The script's.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence if every batch size has to be traced.

    Raises:
        ScriptFailed: If the batch size makes no difference. Also what :func:`trace_script` raises.
    """
    each = cache(lambda batch_size: trace_script(factory, batch_size, behaviour))
    if each(LOW).sizes == each(HIGH).sizes:
        raise ScriptFailed(
            f"a step of {factory.name} creates the same tensors at batch {LOW} and {HIGH}; its "
            "data must have as many samples as the batch_size passed to the factory"
        )
    at: TraceAt = each
    try:
        at = _checked_traces(each(_CHECKED), each).at
    except NotAffine as error:
        warn(f"{error}; tracing each batch size separately")
    single = cache(lambda: one_sample(each, each(LOW)))
    return lambda batch_size: single() if batch_size == 1 else at(batch_size)


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
        factory = replace(request.factory, gradient_accumulation=accumulation)
        if accumulation > 1:
            _check_micro_batches(factory, behaviour)
        return trace_script_at_every_batch_size(factory, behaviour, warn)

    return by_accumulation(request, traces)


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


def _refusal(factory: Factory, error: BaseException) -> CannotTrace:
    """Why a step cannot be traced, and what to do about it."""
    reason = f"{factory.name} cannot be traced without running it"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        reason += f"{factory.where(error)}: it depends on a tensor's value ({error})"
        return CannotTrace(reason)
    if isinstance(error, NotPredictable):
        return CannotTrace(f"{reason}{factory.where(error)}: {error}")
    if "convert all Tensors to FakeTensors" in str(error):
        reason += f"{factory.where(error)}: it uses a tensor that the factory did not create"
        return CannotTrace(reason, "create it there, or measure it")
    # It is not known whether this would fail on real tensors too.
    advice = "fix that, or, if the script runs by itself, measure it"
    return CannotTrace(f"{reason}{factory.describe(error)}", advice)


def _check(steps: ScriptSteps, recorder: MemoryRecorder, factory: Factory) -> None:
    """Refuse a trace that is not of a whole training step."""
    devices = {parameter.device.type for parameter in steps.model.parameters()}
    if devices - {"cpu"}:
        raise CannotTrace(
            f"{factory.name} puts its model on {', '.join(sorted(devices))} while a prediction "
            "runs on the CPU; choose the device inside the factory by torch.cuda.is_available()"
        )
    if recorder.trace.operations and "backward" not in (name for _, name in recorder.trace.phases):
        raise ScriptFailed(
            f"a step of {factory.name} runs no backward pass; it must run a whole training step: "
            "forward, loss, loss.backward(), optimizer"
        )
    if not recorder.trace.operations:
        raise ScriptFailed(
            f"a step of {factory.name} does nothing with tensors created by the factory; create "
            "model, optimizer and data inside it, not while its module is imported"
        )


@contextmanager
def _no_gpu_in_sight() -> Iterator[None]:
    """Make code that looks for a device find the CPU; asking for CUDA by name is an error."""
    with (
        patch.object(torch.cuda, "is_available", lambda: False),
        patch.object(torch.backends.mps, "is_available", lambda: False),
        warnings.catch_warnings(),
    ):
        # torch.autocast("cuda") only warns and then does nothing, which would go unnoticed.
        warnings.filterwarnings("error", message=_CPU_ONLY)
        # It would write a traceback to stderr for an error that is reported anyway.
        _FAKE_TENSORS_LOG.addFilter(_drop_record)
        try:
            yield
        finally:
            _FAKE_TENSORS_LOG.removeFilter(_drop_record)


def _drop_record(record: logging.LogRecord) -> bool:
    return False


@contextmanager
def _optimizers_as_on_cuda() -> Iterator[None]:
    """Make optimizers choose their foreach kernels, which by default they do on CUDA only."""
    module = importlib.import_module("torch.optim.optimizer")  # hidden from torch.optim
    devices = [*module._get_foreach_kernels_supported_devices(), "cpu"]
    types = [*module._foreach_supported_types, FakeTensor]
    with (
        patch.object(module, "_get_foreach_kernels_supported_devices", lambda: devices),
        patch.object(module, "_foreach_supported_types", types),
    ):
        yield


@contextmanager
def _copies() -> Iterator[None]:
    """Make ``copy.deepcopy`` work on fake tensors, whose device it would copy too.

    ``nn.TransformerEncoder`` copies its layers that way, for one.
    """

    def copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if id(tensor) not in memo:
            clone = tensor.detach().clone()
            if isinstance(tensor, torch.nn.Parameter):
                clone = torch.nn.Parameter(clone, tensor.requires_grad)
            if tensor.grad is not None:
                clone.grad = copy(tensor.grad, memo)
            memo[id(tensor)] = clone.requires_grad_(tensor.requires_grad)
        copied: torch.Tensor = memo[id(tensor)]
        return copied

    with patch.object(FakeTensor, "__deepcopy__", copy, create=True):
        yield


@contextmanager
def _movable_modules() -> Iterator[None]:
    """Make ``Module.to`` work on fake tensors, which it would try to swap and cannot."""

    def take_over(parameter: torch.Tensor, moved: torch.Tensor) -> None:
        if moved.device != parameter.device:
            raise RuntimeError(f"there is no {moved.device} while a prediction runs")
        if parameter.untyped_storage()._cdata != moved.untyped_storage()._cdata:
            parameter.data = moved.data

    with patch("torch.utils.swap_tensors", take_over):
        yield
