"""The recorder of one GPU among several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._C._distributed_c10d import _resolve_process_group
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ProcessGroup
from torch.utils._pytree import tree_iter

from ..tracing.operations import cost, operator_name, tensors_in
from ..tracing.operator_mode import parts_of
from ..tracing.recorded import Recorded, Temporaries
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import COPY, ON_HOST, WAITING_COPY, Category, Operation
from ..tracing.whole_operators import arrives_whole
from .offload import HostTensors

_c10d = torch.ops.c10d
_functional = torch.ops._c10d_functional
_FUNCTIONAL: dict[Any, Callable[[int], float]] = {
    _functional.all_reduce.default: lambda count: 2 * (count - 1) / count,
    _functional.all_gather_into_tensor.default: lambda count: count - 1,
    _functional.reduce_scatter_tensor.default: lambda count: (count - 1) / count,
}
_EXCHANGE = _functional.all_to_all_single.default
_WAIT = _functional.wait_tensor.default
# What each GPU of a ring sends, as a share of the operator's input.
_PART = "own_part"


class GroupRecorder(MemoryRecorder):
    """Records what one of several GPUs holds of a training run, and what it sends to the others.

    Args:
        training: The training run to record.
        batch_size: Samples per step and GPU.
        temporaries: As for :class:`~engine.tracing.recorder.MemoryRecorder`.
        before_step: Called before each step, and recorded ahead of it.
        limit_bytes: As above.
        counted: As above.
        host: Offloaded tensors, which are not counted; ``None`` if there are none.
    """

    def __init__(
        self,
        training: Recorded,
        batch_size: int,
        temporaries: Temporaries | None,
        before_step: Callable[[], None],
        limit_bytes: int | None = None,
        counted: Callable[[torch.Tensor], bool] | None = None,
        host: HostTensors | None = None,
    ) -> None:
        self.host = host
        if host is not None:
            counted = _elsewhere(host)
        self._before_step = before_step
        self._made_for: Category | None = None
        self._streams = {torch.cpu.current_stream(): 0}
        self._emptied: set[int] = set()  # addresses of storages that were resized to nothing
        super().__init__(training, batch_size, temporaries, limit_bytes, counted)

    def record_step(self, step: Callable[[], None]) -> None:
        """Record one training step, and what comes before it."""
        with nullcontext() if self.host is None else self.host:  # below the recorder
            with self:
                self._before_step()
            super().record_step(step)

    @contextmanager
    def making(self, category: Category) -> Iterator[None]:
        """Set the category of tensors that are made while the context lasts."""
        before, self._made_for = self._made_for, category
        try:
            yield
        finally:
            self._made_for = before

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """Record that a storage was emptied or filled again.

        PyTorch also resizes storages that no operator made, as it makes fakes of real tensors.
        Nobody would hear of their death, and they take no memory.
        """
        address = storage._cdata
        if address in self._ids:
            self._free(self._ids.pop(address))
        elif address not in self._emptied:
            return
        self._emptied.add(address)
        if size:
            self._emptied.discard(address)
            category = self._made_for or Category.ACTIVATIONS
            self._ids[address] = self._allocate(size, category, self._modules.at_work(), "resize_")

    def sort_gradient(self, gradient: torch.Tensor, parameter: torch.Tensor) -> None:
        """Set the category of a gradient that is not yet a parameter's own."""
        self._sort_into(gradient, Category.GRADIENTS, self._modules.owner(parameter))

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record as usual, and what is sent and what the host does."""
        if func is _WAIT and isinstance(args[0], FakeTensor):
            return args[0]  # as it really does: on fake tensors PyTorch would make another
        output = super().handle(func, args, kwargs)
        if arrives_whole(func):  # its parts have been here
            return output
        self._record_on_host(func, args, kwargs, output)
        moved = bytes_sent(func, args) or _bytes_copied(func, args)
        if moved:
            phase = self._training.phase
            self.trace.operations.append(Operation(operator_name(func), "uint8", 0, moved, phase))
        return output

    def _on_device(self, value: Any) -> bool:
        return super()._on_device(value) and not (self.host is not None and self.host.is_copying)

    def _record_on_host(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Record the work of an operator that runs on the host, or copies from or to it."""
        if self.host is None or self._on_device((args, kwargs, output)):
            return
        operation = cost(self._training.phase, func, args, kwargs, output)
        if operation is None:
            return
        if self.host.is_copying:
            name = WAITING_COPY if self.host.waits else COPY
            copied = sum(one.numel() * one.element_size() for one in tensors_in(output))
            operation = replace(operation, name=name, bytes_moved=copied)
        else:
            operation = replace(operation, name=f"{ON_HOST}{operation.name}")
        self.trace.operations.append(operation)

    def _category(self, phase: str, func: Any, args: tuple[Any, ...]) -> Category:
        return self._made_for or super()._category(phase, func, args)

    def _allocate(self, size: int, category: Category, module: str, operator: str) -> int:
        stream = torch.cpu.current_stream()  # FSDP's streams show here without CUDA
        self.trace.streams.append(self._streams.setdefault(stream, len(self._streams)))
        return super()._allocate(size, category, module, operator)

    def _see(self, tensor: torch.Tensor, category: Category, module: str, operator: str) -> None:
        tensor = own_part(tensor)
        if tensor.untyped_storage()._cdata not in self._emptied:
            super()._see(tensor, category, module, operator)

    def _sort_into(
        self, tensor: torch.Tensor, category: Category, module: str, operator: str | None = None
    ) -> None:
        super()._sort_into(vars(tensor).get(_PART, tensor), category, module, operator)

    def _bury(self, address: int) -> None:
        if address in self._emptied:
            self._emptied.remove(address)
        else:
            super()._bury(address)


def _elsewhere(host: HostTensors) -> Callable[[torch.Tensor], bool]:
    return lambda tensor: own_part(tensor) not in host


def bytes_sent(func: Any, args: tuple[Any, ...]) -> int:
    """Bytes that each GPU sends in a collective operator run as a ring; 0 for other operators.

    A ring of N sends (N - 1)/N of the gathered or scattered tensor, and twice that in an all-reduce
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). N is the size of the
    group that the operator runs in, which may be a part of all GPUs.
    """
    if func is _c10d._allgather_base_.default:
        whole, group = _bytes(args[0]), args[2]
    elif func is _c10d._reduce_scatter_base_.default:
        whole, group = _bytes(args[1]), args[2]
    elif func is _c10d.allreduce_.default:
        whole, group = 2 * sum(_bytes(tensor) for tensor in args[0]), args[1]
    elif func is _c10d.send.default:
        return sum(_bytes(tensor) for tensor in args[0])
    elif func in _FUNCTIONAL or func is _EXCHANGE:
        return _bytes_waited_for(func, args)
    else:
        return 0
    count = ProcessGroup.unbox(group).size()
    return whole * (count - 1) // count


def _bytes_waited_for(func: Any, args: tuple[Any, ...]) -> int:
    """The same of the functional collectives, which split layers wait for."""
    group = _resolve_process_group(args[-1])
    if func is _EXCHANGE:  # all but what a GPU keeps of its own rows
        rows = args[2]
        share = 1 - rows[group.rank()] / max(1, sum(rows))
    else:
        share = _FUNCTIONAL[func](group.size())
    return int(_bytes(args[0]) * share)


def _bytes_copied(func: Any, args: tuple[Any, ...]) -> int:
    """Bytes that FSDP reads and writes to pack and unpack shards and gradients."""
    if func.namespace != "fsdp":
        return 0
    return 2 * sum(_bytes(leaf) for leaf in tree_iter(args[0]) if isinstance(leaf, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """This GPU's part of a tensor that is divided; any other tensor unchanged.

    Of a tensor that is made of several others, as quantized ones are, it is the first of them.
    """
    part: torch.Tensor = vars(tensor).get(_PART, tensor)
    return next(iter(parts_of(part)), part)


def keep_part(weight: torch.nn.Parameter, part: torch.Tensor) -> None:
    """Say which part of a weight a GPU keeps while the rest has no memory."""
    vars(weight)[_PART] = part
