"""The weights of ZeRO 3 that are whole on a GPU, by the rule of DeepSpeed's coordinator.

From its source, 0.19.8 (deepspeed/runtime/zero/partitioned_param_coordinator.py,
parameter_offload.py and partition_parameters.py). A module's own weights are gathered before it
runs and released after it, forward and backward. The first pass is recorded; from the next one on,
weights are gathered ahead, and those stay that are used again soon.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from typing import Any

import torch
from torch.autograd import Variable
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.distributed.distributed_c10d import ReduceScatterOptions, _get_default_group

from ..tracing.trace import Category
from .group_recorder import keep_part, own_part
from .offload import Host
from .zero_division import Division
from .zero_hooks import Readable, each_tensor, watched, watched_together


def all_gather(whole: torch.Tensor, part: torch.Tensor) -> None:
    """Gather the parts of all GPUs. PyTorch's function for it has another name from 2.13 on."""
    _get_default_group()._allgather_base(whole, part)


def reduce_scatter(part: torch.Tensor, whole: torch.Tensor) -> None:
    """Add up what all GPUs have, of which this one takes its part."""
    _get_default_group()._reduce_scatter_base(part, whole, ReduceScatterOptions())


class _Trace(Enum):
    """State of the trace of the order in which modules run (``ZeRoTraceMode``)."""

    INVALID = auto()
    RECORD = auto()
    COMPLETE = auto()


class _Handle:
    """Weights that are being gathered together.

    Attributes:
        weights: All of them.
        flat: Buffer for them; it is freed with the last weight that is waited for.
    """

    def __init__(self, weights: Sequence[torch.nn.Parameter], flat: torch.Tensor) -> None:
        self.weights = list(weights)
        self.flat = flat


class Gathering:
    """The weights of models, of which a GPU keeps its part and gathers the rest.

    Args:
        models: They are changed: their weights have no memory until they are gathered.
        division: The division among GPUs.
        making: Says what the tensors are for that are made while its context lasts.
        host: Returns what is on the host; ``None`` where nothing is offloaded, or not yet.
        device: Where weights are gathered; by default where they are.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        division: Division,
        making: Callable[[Category], AbstractContextManager[None]],
        host: Callable[[], Host | None],
        device: str | None = None,
    ) -> None:
        self._division = division
        self._making = making
        self._host = host
        self._stream = torch.cpu.Stream()  # of which CUDA's allocator has a pool of its own
        self._whole: set[torch.nn.Parameter] = set()
        self._in_flight: dict[torch.nn.Parameter, _Handle] = {}
        self._users: defaultdict[torch.nn.Parameter, set[torch.nn.Module]] = defaultdict(set)
        self._running_backward: dict[torch.nn.Module, None] = {}
        self._trace = _Trace.INVALID
        self._order: list[torch.nn.Module] = []
        self._queue: deque[tuple[torch.nn.Parameter, int]] = deque()
        self._fetched_for: dict[torch.nn.Parameter, int] = {}
        self._step = self._available = 0
        self._paused = False
        self._weights = list(dict.fromkeys(one for model in models for one in model.parameters()))
        for weight in self._weights:
            self._divide(weight, device)
        self._persistent = {
            one: None for one in self._weights if one.numel() <= division.small_elements
        }  # in order, unlike a set
        modules = dict.fromkeys(part for model in models for part in model.modules())
        self._own = {module: dict.fromkeys(module.parameters(recurse=False)) for module in modules}
        self._running: list[torch.nn.Module] = []
        for module in self._own:  # without weights too: while it runs, weights are gathered ahead
            module._parameters = Readable(module._parameters, self._read)
            module.register_forward_pre_hook(self._before_forward)
            module.register_forward_hook(self._after_forward)

    def _divide(self, weight: torch.nn.Parameter, device: str | None) -> None:
        if device is not None:
            weight.data = weight.data.to(device)
        part = -(-weight.numel() // self._division.gpus)
        keep_part(weight, torch.empty(part, dtype=weight.dtype, device=weight.device))
        weight.untyped_storage().resize_(0)

    # What runs

    def begin(self, *_: Any) -> None:
        """Begin with a forward pass of the whole model (``reset_step``)."""
        if self._paused:
            return
        self._let_land()
        if self._trace is _Trace.RECORD:
            self._trace = _Trace.COMPLETE
        elif self._trace is _Trace.INVALID:
            self._trace = _Trace.RECORD
        self._queue = deque(
            (weight, step)
            for step, module in enumerate(self._order)
            for weight in self._own[module]
        )
        self._fetched_for.clear()
        self._step = self._available = 0
        self._running.clear()

    @torch.no_grad()
    def _read(self, weight: torch.nn.Parameter) -> None:
        """Gather a weight that another module reads, to which it belongs from then on."""
        if self._running and not self._paused and self._is_away(weight):
            self._own[self._running[-1]][weight] = None
            self._gather([weight])

    def _before_forward(self, module: torch.nn.Module, given: Any) -> Any:
        if self._paused:
            return None
        self._running.append(module)
        self._fetch(module)
        return watched_together(given, lambda: self._after_backward(module))

    def _after_forward(self, module: torch.nn.Module, _: Any, output: Any) -> Any:
        if self._paused:
            return None
        if self._running:
            self._running.pop()
        self._release(module)
        return each_tensor(
            output, lambda tensor: watched(tensor, lambda: self._before_backward(module))
        )

    def _before_backward(self, module: torch.nn.Module) -> None:
        if not self._running_backward:
            Variable._execution_engine.queue_callback(self._end_backward)
        self._running_backward[module] = None
        self._fetch(module)

    def _after_backward(self, module: torch.nn.Module) -> None:
        self._running_backward.pop(module, None)
        self._release(module)

    def _end_backward(self) -> None:
        """Release the weights of modules whose input has no gradient.

        ``release_backward_leftovers``.
        """
        for module in self._running_backward:
            for weight in self._own[module]:
                self._users[weight].discard(module)
                if weight not in self._persistent:
                    self._free(weight)
        self._running_backward.clear()

    # What is gathered and released

    @torch.no_grad()
    def _fetch(self, module: torch.nn.Module) -> None:
        """Gather a module's weights, and some of those that are needed after it."""
        if self._trace is _Trace.COMPLETE and self._order[self._step : self._step + 1] != [module]:
            self._forget()
        if self._trace is _Trace.RECORD:
            self._order.append(module)
        weights = self._own[module]
        self._gather(weights)
        for weight in weights:
            self._users[weight].add(module)
            self._wait(weight)
        if self._trace is _Trace.COMPLETE:
            self._fetch_ahead(weights)
        self._step += 1

    def _forget(self) -> None:
        """Begin to record anew with the next pass: modules do not run in the order of the last."""
        self._trace = _Trace.INVALID
        self._order.clear()
        self._queue.clear()
        self._fetched_for.clear()
        self._let_land()

    def _let_land(self) -> None:
        for weight in list(self._in_flight):
            self._wait(weight)
            self._free(weight)

    def _fetch_ahead(self, weights: Iterable[torch.nn.Parameter]) -> None:
        late = {one for one in weights if self._fetched_for.get(one, -1) < self._step}
        while self._queue and late:
            weight, step = self._queue.popleft()
            self._fetched_for[weight] = step
            late.discard(weight)
        division = self._division
        room = min(division.live_elements - self._available, division.ahead_elements)
        ahead: dict[torch.nn.Parameter, None] = {}
        while self._queue and sum(one.numel() for one in ahead) < room:
            weight, step = self._queue.popleft()
            self._fetched_for[weight] = max(self._fetched_for.get(weight, -1), step)
            if self._is_away(weight):
                ahead[weight] = None
        self._gather(ahead)

    def _is_away(self, weight: torch.nn.Parameter) -> bool:
        return weight not in self._whole and weight not in self._in_flight

    def _gather(self, weights: Iterable[torch.nn.Parameter]) -> None:
        """Gather weights: one into its own place, several into a buffer that is copied from."""
        away = [one for one in weights if self._is_away(one)]
        if not away:
            return
        self._available += sum(one.numel() for one in away)
        with torch.cpu.stream(self._stream), self._making(Category.PARAMETERS):
            if len(away) == 1:
                self._gather_in_place(away[0])
                return
            for dtype in dict.fromkeys(one.dtype for one in away):
                self._gather_flat([one for one in away if one.dtype is dtype])

    def _gather_in_place(self, weight: torch.nn.Parameter) -> None:
        part = self._on_device(weight)
        with self._filling(weight, part.numel() * self._division.gpus) as place:
            all_gather(place, part)
        self._whole.add(weight)

    def _gather_flat(self, weights: Sequence[torch.nn.Parameter]) -> None:
        parts = [self._on_device(one) for one in weights]
        size = sum(part.numel() for part in parts)
        flat = parts[0].new_empty(size * self._division.gpus)
        torch.cat(parts, out=flat[:size])
        all_gather(flat, flat[:size])
        handle = _Handle(weights, flat)
        self._in_flight.update(dict.fromkeys(weights, handle))

    def _on_device(self, weight: torch.nn.Parameter) -> torch.Tensor:
        part, host = own_part(weight), self._host()
        if host is None or not self._division.weights_on_host:
            return part
        return host.copied(part, "device")

    def _wait(self, weight: torch.nn.Parameter) -> None:
        """Copy out all weights that came with one, the first time that one is waited for."""
        handle = self._in_flight.pop(weight, None)
        if handle is None:
            return
        with torch.cpu.stream(self._stream), self._making(Category.PARAMETERS):
            for one in handle.weights:
                with self._filling(one, one.numel()) as place:
                    place.copy_(handle.flat[: one.numel()])
                self._whole.add(one)
        handle.weights.clear()

    @contextmanager
    def _filling(self, weight: torch.nn.Parameter, count: int) -> Iterator[torch.Tensor]:
        """Give a weight memory for ``count`` numbers; autograd must not see that it changes."""
        weight.untyped_storage().resize_(count * weight.element_size())
        with _unsafe_preserve_version_counter(weight):
            yield weight.detach().as_strided((count,), (1,))

    @torch.no_grad()
    def _release(self, module: torch.nn.Module) -> None:
        """Release a module's weights, unless they are used again soon."""
        kept = self._kept_after(module) if self._trace is _Trace.COMPLETE else set()
        for weight in self._own[module]:
            self._users[weight].discard(module)
            if weight not in kept:
                self._free(weight)

    def _kept_after(self, module: torch.nn.Module) -> set[torch.nn.Parameter]:
        own = self._own[module]
        kept = {one for one in own if self._fetched_for.get(one, -1) > self._step}
        kept.update(one for one in own if one in self._persistent)
        passed = 0
        for later in self._order[self._step :]:
            if passed >= self._division.reuse_elements or len(kept) == len(own):
                break
            kept.update(one for one in self._own[later] if one in own)
            passed += sum(one.numel() for one in self._own[later])
        return kept

    def _free(self, weight: torch.nn.Parameter) -> None:
        if weight in self._whole and not self._users[weight]:
            self._whole.discard(weight)
            weight.untyped_storage().resize_(0)
            self._available -= weight.numel()

    # Between passes

    @torch.no_grad()
    def release_all(self) -> None:
        """Release every weight before the update (``release_and_reset_all``)."""
        for weight in self._weights:
            self._wait(weight)
            self._users[weight].clear()
            self._free(weight)

    @torch.no_grad()
    def gather_persistent(self) -> None:
        """Gather what stays whole from the update to the next (``_post_step``)."""
        self._gather_each(self._persistent)

    @contextmanager
    def all_whole(self) -> Iterator[None]:
        """Have all weights whole while the context lasts (``GatheredParameters``)."""
        given = [one for one in self._weights if one not in self._whole]
        with torch.no_grad():
            self._gather_each(given)
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            for weight in given:
                self._free(weight)

    def _gather_each(self, weights: Iterable[torch.nn.Parameter]) -> None:
        for weight in weights:
            self._wait(weight)
            self._gather([weight])
