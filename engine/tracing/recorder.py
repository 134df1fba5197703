"""Records every tensor storage that a training step makes, and when it is freed.

It works alike over fake tensors and over real ones on the CPU: both go through the same dispatcher,
and a storage dies when its last tensor does.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from ..allocator.caching import ALLOCATE, FREE
from .accumulation import as_accumulated, held_by_engine
from .beside import runs_beside
from .excerpts import (
    Excerpt,
    Moment,
    apart_from,
    freed_of_before,
    frees_in_order,
    insert,
    left_since,
)
from .host_storages import HostStorages
from .module_names import ModuleNames
from .operations import blocks_the_host, operator_name, reads_a_value, tensors_in, work
from .operator_mode import OperatorMode, parts_of
from .recorded import MemoryLimitExceeded, Recorded, Temporaries, Temporary
from .trace import RECOMPUTATION, Category, Operation, Trace
from .whole_operators import arrives_whole, in_parts

_ASKING_FOR_THE_DEVICE = torch.ops.prim.device.default
_CAST = torch.ops.aten._to_copy.default
_CATEGORIES = {"inputs": Category.INPUTS, "outputs": Category.OUTPUTS, "cache": Category.CACHE}
"""Categories of tensors in phases that make one category only."""


class MemoryRecorder(OperatorMode):
    """Records allocations, frees and operations while it is the active dispatch mode.

    Args:
        training: The training run; its parameters and buffers are the first allocations, and its
            phase gives the category of a later tensor.
        batch_size: Samples per step, written into the trace.
        temporaries: Bytes that a kernel takes besides its result, given the phase, the operator,
            its arguments and its result.
        limit_bytes: Raise :class:`MemoryLimitExceeded` when live tensors exceed it.
        counted: Whether a tensor takes memory of the device; all of them do by default.

    Attributes:
        trace: The trace so far.
        live_bytes: Bytes of all storages alive now.
        peak_bytes: The most there have been at once.
    """

    def __init__(
        self,
        training: Recorded,
        batch_size: int,
        temporaries: Temporaries | None = None,
        limit_bytes: int | None = None,
        counted: Callable[[torch.Tensor], bool] | None = None,
    ) -> None:
        super().__init__()
        self.trace = Trace(batch_size)
        self.live_bytes = 0
        self.peak_bytes = 0
        self._training = training
        self._temporaries = temporaries
        self._limit_bytes = limit_bytes
        self._counted = counted
        self._ids: dict[int, int] = {}  # address of each storage alive -> tensor id
        # To hear of their deaths. Kept here and not in a registry of the process, so that a
        # recorder that is done goes away, and the model that it recorded with it.
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._host = HostStorages()
        # Storages that threads beside training know, too, those that they made, and the tensors
        # that have gone of them; addresses and ids.
        self._shared: set[int] = set()
        self._made_beside: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._gone: list[int] = []
        self._hooks: list[RemovableHandle] = []
        self._repeating = False
        self._has_read = False  # a value, since the last operation
        self._engine_alone = held_by_engine()
        self._modules = ModuleNames()
        self._modules.learn(training.model)
        for tensor in _in_order_of_moving(training.model):
            self._see_parts(tensor, Category.PARAMETERS, self._modules.owner(tensor))
        if training.optimizer is not None:  # some make their state at once, such as Adagrad
            for tensor, owner in self._tensors_of(training.optimizer.state):
                self._see_parts(tensor, Category.OPTIMIZER_STATE, owner)

    def record_step(self, step: Callable[[], None]) -> None:
        """Run one training step and record it."""
        with self.recording():
            step()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs in the context: one step, or more.

        Where there are more, :meth:`end_step` and :meth:`begin_step` stand between two of them.
        """
        self.begin_step()
        # Cycles would be freed whenever the collector happens to come by; a trace must not depend
        # on it. Those that the step made are freed at its end.
        gc.disable()
        try:
            with self._modules.watching(), self:
                yield
            gc.collect(0)
            self.end_step()
        except BaseException:
            self._remove_hooks()
            raise
        finally:
            gc.enable()

    def end_step(self) -> None:
        """Sort what the step made: only at its end is it all there."""
        self._remove_hooks()
        self.know_model()  # made in this step, it may be
        for parameter in self._training.model.parameters():
            self._see_gradient(parameter)
        if self._training.optimizer is not None:
            self._sort_state(self._training.optimizer.state)
        self._tidy(self.trace.last_step)

    def peaks_since(self) -> tuple[int, int]:
        """The most bytes on the device, and on the host, since the last call."""
        peak, self.peak_bytes = self.peak_bytes, self.live_bytes
        return peak, self._host.peak_since()

    def kept(self) -> tuple[int, int]:
        """Bytes of tensors alive now, on the device and on the host."""
        return self.live_bytes, self._host.live_bytes

    def finish(self) -> Trace:
        """The trace, to which nothing is added from now on.

        What the steps leave behind is freed at some time after them: a model that is part of a
        cycle, such as one whose module caches a bound method, when the collector comes by.
        """
        self._storages.clear()
        self._host.forget()
        return self.trace

    def know_model(self) -> None:
        """Know the parameters of what is trained, and the names of its modules, from now on."""
        self._modules.learn(self._training.model)
        for tensor in _in_order_of_moving(self._training.model):
            self._sort_into(tensor, Category.PARAMETERS, self._modules.owner(tensor), "")

    def begin_step(self) -> None:
        """Let a step begin with what is recorded from now on."""
        self.trace.last_step = len(self.trace.events)
        self.trace.operations.clear()
        self._has_read = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._see_gradient)
            for parameter in self._training.model.parameters()
            if parameter.requires_grad
        ]

    def excerpt(self, begin: Moment, kept: torch.Tensor) -> Excerpt | None:
        """The record since a moment; ``None`` if it left more behind than this tensor."""
        tensor_id = self._ids.get(kept.untyped_storage()._cdata)
        return Excerpt.since(begin, self.trace, tensor_id)

    def repeat(self, excerpt: Excerpt, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Record an excerpt once more, without running it.

        Args:
            excerpt: An excerpt of this recorder.
            make: Makes the tensor that it leaves behind.
        """
        self._repeating = True
        try:
            kept = make()
        finally:
            self._repeating = False
        self.peak_bytes = max(self.peak_bytes, self.live_bytes + excerpt.peak_bytes)
        tensor_id = excerpt.repeat(self.trace)
        self.live_bytes += self.trace.sizes[tensor_id]
        self._know(kept.untyped_storage(), tensor_id)
        return kept

    def left_only(self, tensors: Sequence[torch.Tensor], begin: Moment) -> bool:
        """Whether these, each with memory of its own, are all that is left since a moment."""
        ids = [self._ids.get(tensor.untyped_storage()._cdata) for tensor in tensors]
        left = left_since(begin, self.trace)
        return bool(ids) and len(set(ids)) == len(ids) and left == set(ids)

    @contextmanager
    def apart(self) -> Iterator[Trace]:
        """Record what runs in the context, and leaves nothing behind, into a trace of its own."""
        part, known = apart_from(self.trace), set(self._ids)
        before = self.trace, self.live_bytes, self.peak_bytes, self._host.peak_bytes
        self.trace, self.live_bytes, self.peak_bytes = part, 0, 0
        try:
            yield part
        finally:
            for address in self._ids.keys() - known:  # kept by a cache, or a cycle
                del self._ids[address], self._storages[address]
            self.trace, self.live_bytes, self.peak_bytes, self._host.peak_bytes = before
            for tensor_id in freed_of_before(part, len(self.trace.sizes)):
                self._free(tensor_id)

    def insert(self, part: Trace, begin: Moment, at: Moment, live_bytes: int) -> None:
        """Record a trace of its own, from a moment on, where so many bytes were alive."""
        peak = insert(part, begin, self.trace, at)
        self.peak_bytes = max(self.peak_bytes, live_bytes + peak)

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator, then record what it made and what it cost."""
        if func is _ASKING_FOR_THE_DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # two calls of three are this one
        if self._repeating:
            return func(*args, **kwargs)
        if arrives_whole(func):
            return in_parts(self, func, args, kwargs)
        self._take_over((args, kwargs))
        func = as_accumulated(func, args, kwargs, self._engine_alone)
        output = func(*args, **kwargs)
        phase = self._training.phase
        module, operator = self._modules.at_work(), operator_name(func)
        for tensor in tensors_in(output):
            if tensor.untyped_storage()._cdata not in self._ids:
                self._see(tensor, self._category(phase, func, args), module, operator)
        if not self._on_device((args, kwargs, output)):
            return output
        if self._temporaries is not None:
            for temporary in self._temporaries(phase, func, args):
                self._take(temporary, module, operator)
        self.trace.operations += self._work(func, args, kwargs, output)
        return output

    def _work(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> list[Operation]:
        if reads_a_value(func):
            self._has_read = self._has_read or not self._is_on_host(args[0])
            return []
        # Autograd's own operations build no graph; those that checkpointing runs again do
        again = torch.is_grad_enabled() and torch._C._current_autograd_node() is not None
        phase = RECOMPUTATION if again else self._training.phase
        found = work(phase, func, args, kwargs, output)
        if found and (self._has_read or self._crosses(func, args, kwargs, output)):
            found[0] = replace(found[0], waits=True)
            self._has_read = False
        return found

    def _crosses(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> bool:
        """Whether the host waits for a copy from the device or to it."""
        return (
            self._counted is not None
            and blocks_the_host(func, args, kwargs)
            and not all(map(self._counted, tensors_in((args, output))))
        )

    def _is_on_host(self, value: torch.Tensor) -> bool:
        """Whether an optimizer keeps it from step to step: such numbers are on the host."""
        known = self._ids.get(value.untyped_storage()._cdata)
        return known is not None and self.trace.categories[known] is Category.OPTIMIZER_STATE

    def _take(self, temporary: Temporary, module: str, operator: str) -> None:
        tensor_id = self._allocate(temporary.size, Category.WORKSPACES, module, operator)
        if temporary.sums is not None:
            self.trace.column_sums[tensor_id] = temporary.sums
        if not temporary.kept:
            self._free(tensor_id)

    def _on_device(self, value: Any) -> bool:
        """Whether an operator with these arguments and results runs on the device."""
        return self._counted is None or any(map(self._counted, tensors_in(value)))

    def _category(self, phase: str, func: Any, args: tuple[Any, ...]) -> Category:
        """Category of a new tensor, as far as it is known when the tensor is made."""
        if phase in _CATEGORIES:
            return _CATEGORIES[phase]
        if func is _CAST:
            source = self._ids.get(args[0].untyped_storage()._cdata)
            if source is not None and self.trace.categories[source] is Category.PARAMETERS:
                return Category.CASTS
        return Category.ACTIVATIONS

    def _see_parts(self, tensor: torch.Tensor, category: Category, module: str) -> None:
        """Record a tensor that was there before, or those that it is made of."""
        for part in parts_of(tensor):
            self._see(part, category, module, "")

    def _see(self, tensor: torch.Tensor, category: Category, module: str, operator: str) -> None:
        """Record a tensor's storage, unless it is known."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._ids or tensor.device.type == "meta":
            return  # a tensor on the meta device has a shape, and no memory anywhere
        if self._counted is not None and not self._counted(tensor):
            if self._host.see(storage):
                self.trace.host_bytes = max(self.trace.host_bytes, self._host.live_bytes)
            return
        self._know(storage, self._allocate(storage.nbytes(), category, module, operator))

    def _know(self, storage: torch.UntypedStorage, tensor_id: int) -> None:
        address = storage._cdata
        self._ids[address] = tensor_id
        self._storages[address] = weakref.ref(storage, lambda _: self._died(address))

    def _died(self, address: int) -> None:
        del self._storages[address]
        if address in self._shared or runs_beside():
            self._shared.discard(address)
            self._gone.append(self._ids.pop(address))
        else:
            self._bury(address)

    def share(self, tensors: Sequence[torch.Tensor]) -> None:
        """A thread beside training uses these: when it lets them go is recorded by the step."""
        addresses = {tensor.untyped_storage()._cdata for tensor in tensors}
        self._shared |= addresses & self._ids.keys()

    def made_beside(self, tensors: Sequence[torch.Tensor]) -> None:
        """A thread beside training made these: they are recorded once training sees them."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            address = storage._cdata
            if address not in self._ids and (self._counted is None or self._counted(tensor)):
                left = partial(self._left_beside, address)
                self._made_beside.setdefault(address, weakref.ref(storage, left))

    def _left_beside(self, address: int, _: object) -> None:
        self._made_beside.pop(address, None)

    def _take_over(self, value: Any) -> None:
        for tensor in tensors_in(value) if self._made_beside else ():
            storage = tensor.untyped_storage()
            if self._made_beside.pop(storage._cdata, None) is not None:
                self._know_from_beside(storage)

    def _know_from_beside(self, storage: torch.UntypedStorage) -> None:
        self._shared.add(storage._cdata)
        self._know(storage, self._allocate(storage.nbytes(), Category.INPUTS, "", ""))

    def settle(self) -> None:
        """Record what threads beside training have made and let go since the last time."""
        for address, known in list(self._made_beside.items()):
            storage = known()
            if storage is not None:
                del self._made_beside[address]
                self._know_from_beside(storage)
        gone, self._gone = sorted(self._gone), []
        for tensor_id in gone:
            self._free(tensor_id)

    def _bury(self, address: int) -> None:
        self._free(self._ids.pop(address))

    def _see_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            owner = self._modules.owner(parameter)
            self._sort_into(parameter.grad, Category.GRADIENTS, owner)

    def _sort_state(self, state: Mapping[Any, Any]) -> None:
        for tensor, owner in self._tensors_of(state):
            self._sort_into(tensor, Category.OPTIMIZER_STATE, owner)

    def _tensors_of(self, state: Mapping[Any, Any]) -> Iterator[tuple[torch.Tensor, str]]:
        """The tensors of an optimizer's state, by parameter, or that of several; and its module."""
        for key, value in state.items():
            owner = self._modules.owner(key) if isinstance(key, torch.Tensor) else ""
            for tensor in (*tensors_in(value), *_in_objects(value)):
                yield tensor, owner

    def sort_into(self, tensor: torch.Tensor, category: Category) -> None:
        """Say what a tensor is for that was recorded already."""
        tensor_id = self._ids.get(tensor.untyped_storage()._cdata)
        if tensor_id is not None:
            self.trace.categories[tensor_id] = category

    def _sort_into(
        self, tensor: torch.Tensor, category: Category, module: str, operator: str | None = None
    ) -> None:
        for part in parts_of(tensor):
            tensor_id = self._ids.get(part.untyped_storage()._cdata)
            if tensor_id is not None:
                self.trace.categories[tensor_id] = category
                self.trace.modules[tensor_id] = module
                if operator is not None:
                    self.trace.makers[tensor_id] = operator

    def _allocate(self, size: int, category: Category, module: str, operator: str) -> int:
        self._mark_phase()
        tensor_id = len(self.trace.sizes)
        self.trace.sizes.append(size)
        self.trace.categories.append(category)
        self.trace.modules.append(module)
        self.trace.makers.append(operator)
        self.trace.events.append((ALLOCATE, tensor_id))
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if self._limit_bytes is not None and self.live_bytes > self._limit_bytes:
            raise MemoryLimitExceeded(self.live_bytes, self._limit_bytes)
        return tensor_id

    def _free(self, tensor_id: int) -> None:
        self._mark_phase()
        self.trace.events.append((FREE, tensor_id))
        self.live_bytes -= self.trace.sizes[tensor_id]

    def _mark_phase(self) -> None:
        phase = self._training.phase
        if not self.trace.phases or phase != self.trace.phases[-1][1]:
            self.trace.phases.append((len(self.trace.events), phase))

    def _tidy(self, begin: int) -> None:
        """Put the frees of the step that began there in order, and mark temporaries.

        Autocast drops its cached casts in the order of a hash table, another in every process.
        Without an allocation in between, the order of frees changes nothing.
        """
        events, categories = self.trace.events, self.trace.categories
        phases = [index for index, _ in self.trace.phases if index > begin]
        for start, end in pairwise([begin, *phases, len(events)]):
            events[start:end] = frees_in_order(events[start:end])
            made = {tensor for kind, tensor in events[start:end] if kind == ALLOCATE}
            for kind, tensor in events[start:end]:
                activation = categories[tensor] is Category.ACTIVATIONS
                if kind == FREE and activation and tensor in made:
                    categories[tensor] = Category.TEMPORARIES


def _in_objects(state: Any) -> Iterator[torch.Tensor]:
    """The tensors of what some optimizers keep beside tensors: projectors, preconditioners."""
    if isinstance(state, dict):
        for value in state.values():
            if not isinstance(value, torch.Tensor) and hasattr(value, "__dict__"):
                yield from tensors_in(vars(value))


def _in_order_of_moving(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Parameters and buffers in the order in which ``Module.to`` moves them: children first."""
    for child in module.children():
        yield from _in_order_of_moving(child)
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
