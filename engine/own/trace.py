"""Traces a person's own training step on fake tensors, with what CUDA would do, where that works.

Fake tensors have shapes and no values. Code that looks at values (``.item()``, a branch on a loss)
or runs kernels of its own cannot be traced; then it is said which line of theirs it was.
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

from engine.errors import EngineError
from engine.own.factory import Factory, OwnCodeFailed
from engine.own.request import OwnCodeRequest
from engine.own.steps import OwnSteps
from engine.prediction.analysis import by_accumulation
from engine.tracing.lowering import CudaBehaviour
from engine.tracing.quadratic import QuadraticTrace
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.temporaries import CudaTemporaries
from engine.tracing.trace import (
    AffineTrace,
    NeedsTwoSamples,
    NotAffine,
    Trace,
    batch_norm_refuses,
    one_sample,
)
from engine.tracing.tracer import HIGH, LOW, TraceAt, fake_device

_CHECKED = 67
"""The batch size at which others are held against the truth. It is no multiple of the sizes that
code splits a batch by, and lies above most of them; more would need memory where a factory makes
its data by other means than PyTorch."""

_STEPS = 3
"""Gradients may live on into the next step: the third one starts as every later one does."""

_CPU_ONLY = "(?s).*CUDA is not available"
_FAKE_TENSORS_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class CannotTrace(EngineError):
    """The person's own code does what fake tensors cannot follow, so there is no prediction.

    Attributes:
        reason: Why, without what to do about it.
    """

    code = "cannot_trace"

    def __init__(self, reason: str, advice: str = "measure it") -> None:
        self.reason = reason
        super().__init__(
            f"{reason}; nothing is predicted: {advice} (--gpu local) on a machine with that GPU"
        )


def trace_own(factory: Factory, batch_size: int, behaviour: CudaBehaviour | None) -> Trace:
    """Trace the making of the steps, then three of them.

    Args:
        factory: Theirs. It must make model, optimizer and data on the CPU where there is no GPU.
        batch_size: Samples per step.
        behaviour: Of the GPU; ``None`` traces what the CPU does.

    Raises:
        CannotTrace: If the code cannot be followed.
        OwnCodeFailed: If it is no factory of steps.
        InvalidInput: If there is no such factory, or PyTorch refuses a batch of 1.
    """
    with _no_gpu_in_sight(), closing(OwnSteps(factory, batch_size)) as steps:
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


def trace_own_at_every_batch_size(
    factory: Factory, behaviour: CudaBehaviour | None, warn: Callable[[str], None]
) -> TraceAt:
    """A few traces that give every batch size from 2 up; one for each where that fails.

    Code that nothing is known of may do anything with its batch: compare each sample with every
    other, halve it, split it. So what two or three traces give is held against one more.

    Args:
        factory: Theirs.
        behaviour: Of the GPU; ``None`` for the CPU.
        warn: Receives a sentence where each batch size has to be traced.

    Raises:
        OwnCodeFailed: If the batch size makes no difference, besides what :func:`trace_own` raises.
    """
    each = cache(lambda batch_size: trace_own(factory, batch_size, behaviour))
    if each(LOW).sizes == each(HIGH).sizes:
        raise OwnCodeFailed(
            f"a step of {factory.name} makes the same tensors at batch {LOW} and {HIGH}; its data "
            "must have as many samples as the batch_size that it is given"
        )
    at: TraceAt = each
    try:
        at = _held_against(each(_CHECKED), each).at
    except NotAffine as error:
        warn(f"{error}; tracing each batch size by itself")
    single = cache(lambda: one_sample(each, each(LOW)))
    return lambda batch_size: single() if batch_size == 1 else at(batch_size)


def _held_against(checked: Trace, each: TraceAt) -> AffineTrace | QuadraticTrace:
    """Traces that give every batch size, straight or with a square, and ``checked`` among them.

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


def trace_own_question(
    request: OwnCodeRequest, behaviour: CudaBehaviour | None, warn: Callable[[str], None]
) -> TraceAt:
    """The traces of a question's factory, which may accumulate at some batch sizes only.

    Args:
        request: The question.
        behaviour: Of the GPU; ``None`` for the CPU.
        warn: Receives a sentence where each batch size has to be traced.
    """

    def made(accumulation: int) -> TraceAt:
        factory = replace(request.factory, gradient_accumulation=accumulation)
        if accumulation > 1:
            _check_micro_batches(factory, behaviour)
        return trace_own_at_every_batch_size(factory, behaviour, warn)

    return by_accumulation(request, made)


def _check_micro_batches(factory: Factory, behaviour: CudaBehaviour | None) -> None:
    """Refuse code of which two micro-batches do not tell the memory of any number of them."""
    one_more = replace(factory, gradient_accumulation=factory.gradient_accumulation + 1)
    peak, more = (trace_own(f, LOW, behaviour).peak_by_category()[0] for f in (factory, one_more))
    if peak != more:
        raise CannotTrace(
            f"a step of {factory.name} takes {more - peak:+,} bytes with one micro-batch more "
            "to accumulate, so it keeps something of each"
        )


def _refusal(factory: Factory, error: BaseException) -> CannotTrace:
    """Why a step cannot be traced, and what to do about it."""
    said = f"{factory.name} cannot be followed without running it"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        said += f"{factory.where(error)}: it depends on a tensor's value ({error})"
        return CannotTrace(said)
    if "convert all Tensors to FakeTensors" in str(error):
        said += f"{factory.where(error)}: it uses a tensor that was not made by the factory"
        return CannotTrace(said, "make it there, or measure it")
    # Whether it would fail on real tensors too is not known.
    advice = "correct that, or, if it does run by itself, measure it"
    return CannotTrace(f"{said}{factory.told(error)}", advice)


def _check(steps: OwnSteps, recorder: MemoryRecorder, factory: Factory) -> None:
    """Refuse a trace that is not of a training, or not of a whole one."""
    devices = {parameter.device.type for parameter in steps.model.parameters()}
    if devices - {"cpu"}:
        raise CannotTrace(
            f"{factory.name} puts its model on {', '.join(sorted(devices))} while a prediction "
            "runs on the CPU; choose the device inside the factory by torch.cuda.is_available()"
        )
    if recorder.trace.operations and "backward" not in (name for _, name in recorder.trace.phases):
        raise OwnCodeFailed(
            f"a step of {factory.name} runs no backward pass; it must run a whole training step: "
            "forward, loss, loss.backward(), optimizer"
        )
    if not recorder.trace.operations:
        raise OwnCodeFailed(
            f"a step of {factory.name} runs nothing on tensors made by the factory; make model, "
            "optimizer and data inside it, not while its module is imported"
        )


@contextmanager
def _no_gpu_in_sight() -> Iterator[None]:
    """Let code that asks for a device take the CPU; what asks for CUDA by name is an error."""
    with (
        patch.object(torch.cuda, "is_available", lambda: False),
        patch.object(torch.backends.mps, "is_available", lambda: False),
        warnings.catch_warnings(),
    ):
        # torch.autocast("cuda") only warns, and then does nothing: it would go unnoticed.
        warnings.filterwarnings("error", message=_CPU_ONLY)
        # It would write a traceback to stderr, of an error that is told in words.
        _FAKE_TENSORS_LOG.addFilter(_hide)
        try:
            yield
        finally:
            _FAKE_TENSORS_LOG.removeFilter(_hide)


def _hide(record: logging.LogRecord) -> bool:
    return False


@contextmanager
def _optimizers_as_on_cuda() -> Iterator[None]:
    """Optimizers choose their foreach kernels, as they do by default on CUDA alone."""
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
    """``copy.deepcopy`` works on fake tensors, of which it would copy the device too.

    ``nn.TransformerEncoder`` is one that copies its layers.
    """

    def copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if id(tensor) not in memo:
            made = tensor.detach().clone()
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            if tensor.grad is not None:
                made.grad = copy(tensor.grad, memo)
            memo[id(tensor)] = made.requires_grad_(tensor.requires_grad)
        copied: torch.Tensor = memo[id(tensor)]
        return copied

    with patch.object(FakeTensor, "__deepcopy__", copy, create=True):
        yield


@contextmanager
def _movable_modules() -> Iterator[None]:
    """``Module.to`` works on fake tensors, which it would swap and cannot."""

    def take_over(parameter: torch.Tensor, moved: torch.Tensor) -> None:
        if moved.device != parameter.device:
            raise RuntimeError(f"there is no {moved.device} while a prediction runs")
        if parameter.untyped_storage()._cdata != moved.untyped_storage()._cdata:
            parameter.data = moved.data

    with patch("torch.utils.swap_tensors", take_over):
        yield
