"""Shards that FSDP keeps on the host (``CPUOffloadPolicy``), while a step is traced on the CPU.

There is one memory in a trace, so it has to be said which tensors are where: shards, their
gradients and what the optimizer makes of them are on the host. FSDP's copies between the two do
nothing on a CPU; they are made here where FSDP makes them
(torch/distributed/fsdp/_fully_shard/_fsdp_param.py and _fsdp_collectives.py, 2.13).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.utils._python_dispatch import TorchDispatchMode

from ..tracing.operations import tensors_in
from ..versions.patches import patched


class Host(Protocol):
    """The place of tensors that are not on the GPU.

    Attributes:
        device: Device on which to create tensors for the host; ``None`` if they get there by
            themselves.
    """

    device: torch.device | None

    def copy(
        self, source: torch.Tensor, target: torch.Tensor, place: str, *, waits: bool = False
    ) -> None:
        """Copy to a tensor on the ``host`` or the ``device``, beside the kernels or before them."""

    def copied(
        self, tensor: torch.Tensor, place: str, *, waits: bool | None = None
    ) -> torch.Tensor:
        """A copy on the ``host`` or the ``device``; by default, kernels wait if they always do."""


class HostTensors(TorchDispatchMode):
    """Follows which tensors are on the host while it is the active dispatch mode.

    What is made of tensors on the host alone is there too; what the optimizer makes of nothing is.

    Args:
        shards: Tensors that are there from the beginning.
        phase: Returns what the step is doing.
        waits: Whether the GPU waits for copies, which run in the stream of its kernels.
    """

    device: torch.device | None = None

    def __init__(
        self, shards: Iterable[torch.Tensor], phase: Callable[[], str], *, waits: bool = False
    ) -> None:
        self.waits = waits
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no type for it
        self._phase = phase
        self._there: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._copying_to: str | None = None
        for shard in shards:
            self._put(shard)

    @property
    def is_copying(self) -> bool:
        """Whether the operator at work crosses the link."""
        return self._copying_to is not None

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._there

    def copy(
        self, source: torch.Tensor, target: torch.Tensor, place: str, *, waits: bool = False
    ) -> None:
        """As :class:`Host` says."""
        with self._copying(place, waits):
            target.copy_(source)

    def copied(
        self, tensor: torch.Tensor, place: str, *, waits: bool | None = None
    ) -> torch.Tensor:
        """As :class:`Host` says."""
        with self._copying(place, self.waits if waits is None else waits):
            return tensor.clone(memory_format=torch.contiguous_format)

    @contextmanager
    def _copying(self, place: str, waits: bool) -> Iterator[None]:
        before, self.waits = self.waits, waits
        self._copying_to = place
        try:
            yield
        finally:
            self._copying_to = None
            self.waits = before

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator, then note where its results are."""
        output = func(*args, **(kwargs or {}))
        if self._is_on_host((args, kwargs)):
            for tensor in tensors_in(output):
                self._put(tensor)
        return output

    def _is_on_host(self, given: Any) -> bool:
        if self._copying_to is not None:
            return self._copying_to == "host"
        tensors = tensors_in(given)
        if not tensors:
            return self._phase() == "optimizer"
        return all(tensor in self for tensor in tensors)

    def _put(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._there:
            self._there[address] = weakref.ref(storage, lambda _: self._there.pop(address))


@contextmanager
def copying_shards(host: Callable[[], HostTensors | None], *, gradients: bool) -> Iterator[None]:
    """Make FSDP's copies between host and device while the context lasts.

    Args:
        host: Returns what is on the host; ``None`` where nothing is offloaded, or not yet.
        gradients: Whether FSDP sends gradients there too; ZeRO does so in its own way.
    """
    read: Any = FSDPParam.all_gather_inputs.fget  # type: ignore[attr-defined]  # it is a property
    wrap = FSDPParam.to_sharded_dtensor

    def inputs(parameter: Any) -> list[torch.Tensor]:
        shard = parameter._sharded_param_data
        if (tensors := host()) is not None and shard in tensors:
            shard = tensors.copied(shard, "device")
        with patched(
            parameter,
            "_sharded_param_data",
            shard,
            why="the shard is gathered from its copy on the device",
        ):
            given: list[torch.Tensor] = read(parameter)
            return given

    def sharded(parameter: Any, tensor: torch.Tensor) -> Any:
        tensors = host() if gradients else None
        if tensors is not None and tensor not in tensors:
            tensor = tensors.copied(tensor, "host")
        return wrap(parameter, tensor)

    with (
        patched(
            FSDPParam,
            "all_gather_inputs",
            property(inputs),
            why="FSDP's copy from the host is made, and recorded, here",
        ),
        patched(
            FSDPParam,
            "to_sharded_dtensor",
            sharded,
            why="FSDP's copy of gradients to the host is made, and recorded, here",
        ),
    ):
        yield
