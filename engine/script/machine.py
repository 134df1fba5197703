"""The machine that code seems to run on while it is traced.

Its tensors are fake, so that nothing is computed and no memory is taken; a catalogue GPU is
there, or none; values that nobody knows are placeholders. Code inside needs no change: it may look
for CUDA, move models and batches, autocast, load data, read its losses.

::

    values = Values()
    with pretended_machine(behaviour, gpu, values) as machine:
        recorder = machine.recorder(training, batch_size)
        with recorder:
            ...  # build, load data, train
    recorder.trace  # what was allocated on the GPU
    values.lines()  # where placeholders were used

One such run proves nothing where placeholders were used. As many more as it takes are
made by :func:`engine.script.values.placeholders.check_values`. What was created before the
machine was entered is real and does not mix with what is created in it.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from operator import is_
from typing import Any

import torch
from torch._ops import OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from ..gpus import GPUS, Gpu, Vendor
from ..parallel.group_recorder import GroupRecorder
from ..traces.machine import as_on_cuda, fake_tensors
from ..tracing.lowering import CudaBehaviour, CudaTemporaries
from ..tracing.recorded import Recorded
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Category
from ..versions.kernels import declared_without_gpu
from ..versions.patches import patched
from .devices.compiled import runs_compiled, uncompiled
from .devices.cuda_device import on_gpu, placing_tensors
from .devices.cuda_functions import catalogue_gpu
from .devices.data_on_gpu import data_on_the_gpu
from .devices.loaded_files import made_where_they_are_loaded
from .devices.made_of_others import placed_by_parts
from .devices.nested import padding_kept
from .devices.process_group import pretended_processes
from .devices.sharding import followed_shards
from .devices.triton_kernels import triton_launches
from .libraries.paged_state import paged_state
from .libraries.pretrained import without_weights
from .values.placeholders import Values
from .values.values import ScriptValues, answering

_CPU_ONLY = "(?s).*CUDA is not available"
_FAKE_TENSORS_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class Machine:
    """A machine that code is traced on.

    Args:
        behaviour: Behaviour of its GPU; ``None`` without one.
        shows_gpu: Whether code sees the GPU. If not, the CPU stands in its place: what is created
            on the CPU counts as on the GPU, and behaves so.

    Attributes:
        caveats: Sentences that an answer has to state about what ran.
        is_computed: Whether a part of the trace is computed, of a program that did not run.
    """

    def __init__(self, behaviour: CudaBehaviour | None, shows_gpu: bool) -> None:
        self.caveats: list[str] = []
        self.is_computed = False
        self.behaviour = behaviour
        self.shows_gpu = shows_gpu
        self._recorder: GroupRecorder | None = None

    def recorder(self, training: Recorded, batch_size: int) -> MemoryRecorder:
        """A recorder of what is on the GPU; of everything, where there is none to see.

        Args:
            training: As for :class:`~engine.tracing.recorder.MemoryRecorder`.
            batch_size: Samples per step.
        """
        temporaries = CudaTemporaries(self.behaviour) if self.behaviour is not None else None
        counted = on_gpu if self.shows_gpu else None
        self._recorder = GroupRecorder(training, batch_size, temporaries, _nothing, counted=counted)
        return self._recorder

    def making(self, category: Category) -> AbstractContextManager[None]:
        """Say what the tensors are for that are made while the context lasts."""
        return nullcontext() if self._recorder is None else self._recorder.making(category)

    def note(self, caveat: str) -> None:
        """Say something about what runs, once."""
        if caveat not in self.caveats:
            self.caveats.append(caveat)

    def computes(self, how: str) -> None:
        """Say how a part of the trace is computed."""
        self.is_computed = True
        self.note(how)

    def memory(self) -> tuple[int, int]:
        """Bytes recorded as allocated now, and the most there have been."""
        if self._recorder is None:
            return 0, 0
        return self._recorder.live_bytes, self._recorder.peak_bytes


def _nothing() -> None:
    pass


@contextmanager
def pretended_machine(
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None = None,
    values: Values | None = None,
    *,
    shows_gpu: bool = True,
    takes_real: bool = False,
) -> Iterator[Machine]:
    """Let code run on fake tensors, on a machine with a GPU, for as long as the context lasts.

    Args:
        behaviour: Behaviour of the GPU; ``None`` for a machine without, whose tensors are those of
            the CPU.
        gpu: The GPU that ``torch.cuda`` reports; by default a catalogue GPU that behaves so.
        values: Values that code gets where it reads a tensor; they record where it does.
        shows_gpu: Whether code sees a GPU. If not, the CPU stands in its place: for code that never
            asks for one and trains on the CPU as if it were one.
        takes_real: Whether code may use real tensors: all that a program has not made itself are
            of its data, such as a window that its collate function keeps.
    """
    _device_constructors()  # it keeps a list of functions, which must not be of those patched here
    shows_gpu = shows_gpu and behaviour is not None
    machine = Machine(behaviour, shows_gpu)
    fake = ScriptValues()
    fake.allow_non_fake_inputs = takes_real
    fake.on_cuda = behaviour is not None
    with ExitStack() as stack:
        stack.enter_context(seen_gpu(behaviour, gpu, machine))
        stack.enter_context(fake_tensors(fake))
        stack.enter_context(answering(values or Values(), fake))
        stack.enter_context(uncompiled(machine.note))
        stack.enter_context(paged_state(machine.note))
        stack.enter_context(without_weights(machine.note))
        stack.enter_context(padding_kept(machine.note))
        stack.enter_context(pretended_processes(machine.making))
        stack.enter_context(followed_shards(lambda: machine._recorder))
        for context in (
            *(_quietly, _one_process, declared_without_gpu, made_where_they_are_loaded),
            *(_copies, _foreach_on_fakes, _numbers_for_operators),
        ):
            stack.enter_context(context())
        if behaviour is not None:
            stack.enter_context(as_on_cuda(behaviour, runs_compiled))
            stack.enter_context(placing_tensors() if shows_gpu else _foreach_on_the_cpu())
        if behaviour is not None and shows_gpu:
            stack.enter_context(placed_by_parts())
            stack.enter_context(data_on_the_gpu())
            stack.enter_context(triton_launches(gpu or _like(behaviour), machine.note))
        yield machine


@contextmanager
def seen_gpu(behaviour: CudaBehaviour | None, gpu: Gpu | None, machine: Machine) -> Iterator[None]:
    """Let code that looks for a GPU find this one, or none; tensors stay what they are."""
    if behaviour is not None and machine.shows_gpu:
        with catalogue_gpu(gpu or _like(behaviour), machine.memory):
            yield
        return
    with (
        patched(
            torch.cuda,
            "is_available",
            lambda: False,
            why="code that asks must find no GPU, as on such a machine",
        ),
        patched(
            torch._C,
            "_get_accelerator",
            lambda *_: torch.device("cpu"),
            why="the accelerator is the CPU where no GPU is shown",
        ),
        patched(
            torch.backends.mps,
            "is_available",
            lambda: False,
            why="a Mac's GPU is not the machine that is asked about",
        ),
        warnings.catch_warnings(),
    ):
        # torch.autocast("cuda") only warns and then does nothing, which would go unnoticed.
        warnings.filterwarnings("error", message=_CPU_ONLY)
        yield


def _like(behaviour: CudaBehaviour) -> Gpu:
    """The catalogue's GPU whose compute capability is nearest; of several the largest."""

    def apart(gpu: Gpu) -> tuple[float, int]:
        return abs(gpu.compute_capability - behaviour.compute_capability), -gpu.total_bytes

    return min((gpu for gpu in GPUS.values() if gpu.vendor is Vendor.NVIDIA), key=apart)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep PyTorch from writing a traceback for an error that is reported anyway."""
    _FAKE_TENSORS_LOG.addFilter(_drop_record)
    try:
        yield
    finally:
        _FAKE_TENSORS_LOG.removeFilter(_drop_record)


def _drop_record(record: logging.LogRecord) -> bool:
    return False


@contextmanager
def _one_process() -> Iterator[None]:
    """Make data loaders work in this process: others would make real tensors."""

    def iterate(loader: DataLoader[Any]) -> Any:
        given = loader.num_workers, loader.timeout
        loader.num_workers, loader.timeout = 0, 0
        try:
            with _disable_current_modes():  # it draws a seed
                return _SingleProcessDataLoaderIter(loader)
        finally:
            loader.num_workers, loader.timeout = given

    with patched(
        DataLoader,
        "_get_iterator",
        iterate,
        why="workers in processes of their own would make real tensors",
    ):
        yield


@contextmanager
def _numbers_for_operators() -> Iterator[None]:
    """Let operators of packages read fake tensors where they take a number, as they do real ones.

    The 32-bit kernel of bitsandbytes' optimizers gets the norm of a parameter so, for one.
    """
    call = OpOverloadPacket.__call__

    def called(operator: OpOverloadPacket[..., Any], /, *given: Any, **named: Any) -> Any:
        try:
            return call(operator, *given, **named)
        except RuntimeError:
            if "default" not in operator.overloads():
                raise
            declared = operator.default._schema.arguments
            numbers = [
                value.item()
                if str(one.type) in _NUMBERS and isinstance(value, FakeTensor)
                else value
                for one, value in zip(declared, given, strict=False)
            ]
            if all(map(is_, numbers, given)):
                raise
            return call(operator, *numbers, **named)

    with patched(
        OpOverloadPacket,
        "__call__",
        called,
        why="operators read fake tensors where they take a number, as they do real ones",
    ):
        yield


_NUMBERS = ("float", "int", "number")
"""Types of arguments, as schemas call them."""


@contextmanager
def _foreach_on_fakes() -> Iterator[None]:
    """Let optimizers and the clipping of gradients choose foreach kernels for fake tensors too."""
    with ExitStack() as stack:
        for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
            module = importlib.import_module(name)  # the first is hidden from torch.optim
            types = [*module._foreach_supported_types, FakeTensor]
            stack.enter_context(
                patched(
                    module,
                    "_foreach_supported_types",
                    types,
                    why="foreach kernels refuse subclasses of tensors that they do not know",
                )
            )
        yield


@contextmanager
def _foreach_on_the_cpu() -> Iterator[None]:
    """Make optimizers choose their foreach kernels, which by default they do on CUDA only."""
    module = importlib.import_module("torch.optim.optimizer")
    devices = [*module._get_foreach_kernels_supported_devices(), "cpu"]
    with patched(
        module,
        "_get_foreach_kernels_supported_devices",
        lambda: devices,
        why="foreach kernels are the default on CUDA only, and the CPU stands for it",
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

    with patched(
        FakeTensor,
        "__deepcopy__",
        copy,
        why="it would copy the tensor's device, too",
        is_missing_in_some=True,
    ):
        yield
