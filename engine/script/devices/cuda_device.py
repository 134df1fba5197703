"""Places of tensors: fake tensors on a GPU that is not there.

Fake tensors on ``cuda`` do not work without a GPU: autograd asks the CUDA runtime for its devices
and streams, and neither a build without CUDA nor one without a device has an answer. So every
tensor stays a fake one on the CPU for the dispatcher and for autograd, and the place where it would
be is noted on its storage, which views, ``Parameter.data`` and saved tensors share:

* :class:`DeviceMode` takes ``device="cuda"`` out of every operator's arguments, notes the place of
  its result, and refuses operands in two places as CUDA does. At the dispatcher it also sees what
  PyTorch runs in the backward pass, in recomputation and in compiled code of its own.
* ``device``, ``is_cuda``, ``to``, ``cuda``, ``cpu`` and the like of a fake tensor answer by its
  place. C++ goes on reading ``cpu``, so all that moves a tensor between places is done here.

Tensors without a noted place are on the host, and take no GPU memory.

Data are real tensors while they are loaded; see :mod:`.data_on_gpu`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ...parallel.group_recorder import own_part
from ...tracing.operations import tensors_in
from ...tracing.operator_mode import OperatorMode
from ...versions.patches import patched
from .data_to_tensors import tensors_of_data
from .device_names import as_device, numbers_as_devices
from .sparse import refuse_sparse
from .typed_tensors import tensor_type_name

_aten = torch.ops.aten
_ASKING_FOR_THE_DEVICE = torch.ops.prim.device.default

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)

_PLACE = "_place_of_tensor"
_GPU, _PINNED, _MANAGED = "gpu", "pinned", "managed"


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or its shard, would be on the GPU."""
    return getattr(own_part(tensor).untyped_storage(), _PLACE, None) == _GPU


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a tensor would be in the host's pinned memory."""
    return getattr(own_part(tensor).untyped_storage(), _PLACE, None) == _PINNED


def put_in_managed_memory(tensor: torch.Tensor) -> None:
    """Note that a tensor is in memory that both the host and the GPU work on."""
    setattr(tensor.untyped_storage(), _PLACE, _MANAGED)


def _is_managed(tensor: torch.Tensor) -> bool:
    return getattr(own_part(tensor).untyped_storage(), _PLACE, None) == _MANAGED


class _Running(threading.local):
    """State of the operators that are running, in this thread.

    Attributes:
        operators: Their number, one inside another; in them, every tensor is on the CPU.
        moving: Whether a tensor is moved to the host.
        last_on_gpu: Whether the operator before ran on the GPU.
    """

    operators: int = 0
    moving: bool = False
    last_on_gpu: bool = False


_running = _Running()


class DeviceMode(OperatorMode):
    """Notes where tensors would be, while it is the active dispatch mode."""

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator on the CPU, and note where its result would be."""
        if func is _ASKING_FOR_THE_DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        kwargs = dict(kwargs)
        place = _take_out_place(func, args, kwargs)
        if func is _aten._pin_memory.default:
            func, kwargs = _aten.clone.default, {}
        elif func is _aten._to_copy.default and kwargs.get("memory_format") is None:
            kwargs["memory_format"] = torch.preserve_format  # else no copy where only places differ
        _running.operators += 1
        try:
            output = func(*args, **kwargs)
        finally:
            _running.operators -= 1
        if place is not None:
            for tensor in tensors_in(output):
                setattr(own_part(tensor).untyped_storage(), _PLACE, place)
        return output


def _take_out_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the place of an operator's result, and put its arguments on the CPU.

    Raises:
        RuntimeError: If the operands are in two places.
    """
    device = kwargs.get("device")
    if device is not None and device.type == "cuda":
        _check_ordinal(device)
        kwargs["device"] = CPU
        gpu = True
    elif device is not None and (_running.moving or "pin_memory" in kwargs):
        gpu = False  # Python says so; from C++ comes no word about pinned memory
    elif tensors_in((args, kwargs)):
        gpu = _operands_on_gpu(func, args, kwargs)
    else:
        gpu = _running.last_on_gpu  # C++ makes it for a tensor at hand, whose device it reads
    _running.last_on_gpu = gpu
    pinned = kwargs.pop("pin_memory", None) or func is _aten._pin_memory.default
    if gpu:
        return _GPU
    return _PINNED if pinned else None


_MIXING = {
    _aten.copy_,
    _aten._foreach_copy_,
    _aten.index,
    _aten.index_put,
    _aten.index_put_,
    _aten._index_put_impl_,
    _aten._unsafe_index,
    _aten._unsafe_index_put,
    _aten.set_,
}
"""Operators that take operands in two places; the result is where the first one is."""


def _operands_on_gpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator runs on the GPU. A single number may come from the host."""
    operands = tensors_in((args, kwargs))
    if any(isinstance(one, FakeTensor) for one in operands):
        refuse_sparse(func, operands)
    # Real ones, which data may have, have no storage to note a place on, and are on the host.
    operands = [one for one in operands if one.layout is torch.strided]
    if func._overloadpacket in _MIXING:
        return bool(operands) and on_gpu(operands[0])
    places = [(on_gpu(one), one.dim()) for one in operands if not _is_managed(one)]
    gpu = any(on for on, _ in places)
    if gpu and any(not on and dimensions for on, dimensions in places):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{CUDA} and {CPU}! ({func})"
        )
    return gpu


def _check_ordinal(device: torch.device) -> None:
    if device.index:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal ({device}): this training run has one GPU. With "
            f"all on {CUDA}, the answer is what its GPUs take together"
        )


class _Move(torch.autograd.Function):
    """A copy in another place, whose gradient goes back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        ctx.back = {"dtype": tensor.dtype, "device": CUDA if on_gpu(tensor) else CPU}
        return _copy(tensor, options)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _copy(gradient, ctx.back), None


def _copy(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    _running.moving = options["device"].type == "cpu"
    try:
        return cast(torch.Tensor, _aten._to_copy.default(tensor, **options))
    finally:
        _running.moving = False


def move(
    tensor: torch.Tensor,
    device: torch.device,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    *,
    non_blocking: bool = False,
) -> torch.Tensor:
    """A tensor's copy in the other place.

    Args:
        tensor: A fake one.
        device: ``cuda`` or ``cpu``.
        dtype: Number format of the copy; the tensor's own by default.
        memory_format: Memory format of the copy; the tensor's own by default.
        non_blocking: Whether the host goes on while the copy to the GPU is made. To its own memory,
            unless that is pinned, no copy is made so.
    """
    options: dict[str, Any] = {"device": device, "dtype": dtype, "memory_format": memory_format}
    options["non_blocking"] = non_blocking and device.type == "cuda"
    if tensor.requires_grad and torch.is_grad_enabled():
        return cast(torch.Tensor, _Move.apply(tensor, options))
    return _copy(tensor, options)


def wanted_place(
    args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[torch.device | None, dict[str, Any]]:
    """The device that ``Tensor.to`` is given, and its other arguments by name."""
    rest, given = list(args), dict(kwargs)
    other = given.pop("other", None)
    if rest and isinstance(rest[0], torch.Tensor):
        other = rest.pop(0)
    if other is not None:
        given |= {"device": other.device, "dtype": other.dtype}
    elif rest and not isinstance(rest[0], torch.dtype):
        given["device"] = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            given["dtype"] = rest.pop(0)
    elif rest:
        given["dtype"] = rest.pop(0)
    given |= dict(zip(("non_blocking", "copy", "memory_format"), rest, strict=False))
    device = given.pop("device", None)
    return None if device is None else as_device(device), given


_cpu_device: Any = FakeTensor.device
_real_device: Any = torch._C.TensorBase.device
_to, _type, _new_tensor = torch.Tensor.to, torch.Tensor.type, torch.Tensor.new_tensor
_new: Any = torch.Tensor.new


def device_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor would be; inside an operator, the CPU."""
    if _running.operators or not on_gpu(tensor):
        own = own_part(tensor)
        where = _cpu_device if isinstance(own, FakeTensor) else _real_device
        return cast(torch.device, where.__get__(own))
    return CUDA


def moved_to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to``."""
    if _running.operators:
        return _to(tensor, *args, **kwargs)
    wanted, given = wanted_place(args, kwargs)
    if wanted is None or wanted.type == tensor.device.type:
        if wanted is not None:
            _check_ordinal(wanted)
        return _to(tensor, **given) if given else tensor
    if wanted.type not in ("cuda", "cpu"):
        return _to(tensor, *args, **kwargs)
    return move(
        tensor,
        wanted,
        given.get("dtype"),
        given.get("memory_format"),
        non_blocking=bool(given.get("non_blocking")),
    )


def to_cuda(
    tensor: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    *,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """``Tensor.cuda``."""
    there = CUDA if device is None else as_device(device)
    return moved_to(tensor, there, non_blocking=non_blocking, memory_format=memory_format)


def _to_cpu(
    tensor: torch.Tensor, *, memory_format: torch.memory_format = torch.preserve_format
) -> torch.Tensor:
    return moved_to(tensor, CPU, memory_format=memory_format)


def _typed(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``Tensor.type``, which takes and returns names such as ``torch.cuda.FloatTensor``."""
    if dtype is None:
        name: str = _type(tensor)
        return name.replace("torch.", "torch.cuda.") if tensor.is_cuda else name
    if isinstance(dtype, torch.dtype):
        return _type(tensor, dtype, *args, **kwargs)
    name = tensor_type_name(dtype)
    there = CUDA if ".cuda." in name else CPU
    return moved_to(tensor, there, _type(torch.empty(0), name.replace(".cuda", "")).dtype)


def _new_beside(tensor: torch.Tensor, data: Any, **options: Any) -> torch.Tensor:
    """``Tensor.new_tensor``, which C++ would make on the host."""
    wanted = options.pop("device", None)
    needs_gradient = options.pop("requires_grad", False)
    made = _new_tensor(tensor, data, **options)
    placed = moved_to(made, tensor.device if wanted is None else as_device(wanted))
    return placed.requires_grad_(needs_gradient)


def _new_of_old(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.new``, which C++ makes on the host where it is given the numbers."""
    device = kwargs.pop("device", None)
    made: torch.Tensor = _new(tensor, *args, **kwargs)
    return moved_to(made, tensor.device if device is None else as_device(device))


_METHODS: dict[str, Any] = {
    "device": property(device_of),
    "is_cuda": property(lambda tensor: tensor.device.type == "cuda"),
    "is_cpu": property(lambda tensor: tensor.device.type == "cpu"),
    "get_device": lambda tensor: 0 if tensor.is_cuda else -1,
    "to": moved_to,
    "cuda": to_cuda,
    "cpu": _to_cpu,
    "type": _typed,
    "type_as": lambda tensor, other: moved_to(tensor, other.device, other.dtype),
    "new": _new_of_old,
    "new_tensor": _new_beside,
    "share_memory_": lambda tensor: tensor,
    "pin_memory": lambda tensor, device=None: _aten._pin_memory.default(tensor),
    "is_pinned": lambda tensor, device=None: is_pinned(tensor),
    "record_stream": lambda tensor, stream: None,
}
"""Attributes and methods of a fake tensor that depend on its place."""


def modes_of_places() -> list[DeviceMode]:
    """The active modes that note places: one, or none."""
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, DeviceMode)]


def _by_place(group: Callable[..., Any]) -> Callable[..., Any]:
    """Groups an optimizer's tensors by the places where they would be."""

    def grouped(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for (device, dtype), (tensors, indices) in group(lists, with_indices).items():
            places = [on_gpu(tensor) for tensor in tensors[0]]
            for place in dict.fromkeys(places):
                chosen = [index for index, there in enumerate(places) if there is place]
                result[CUDA if place else device, dtype] = (
                    [[one[index] for index in chosen] if one else one for one in tensors],
                    [indices[index] for index in chosen] if indices else indices,
                )
        return result

    return grouped


@contextmanager
def placing_tensors(
    kinds: Sequence[type] = (FakeTensor, DTensor), mode: DeviceMode | None = None
) -> Iterator[None]:
    """Let tensors be on the host or on the GPU, for as long as the context lasts.

    Args:
        kinds: Classes whose tensors answer by their place.
        mode: Notes the places, if not a plain :class:`DeviceMode`.
    """
    numbers = list(numbers_as_devices())
    ctc_loss = torch.ctc_loss

    def placed_ctc_loss(
        log_probabilities: torch.Tensor, targets: torch.Tensor, *lengths: Any
    ) -> torch.Tensor:
        """Its lengths may be on the host; C++ takes them to the probabilities."""
        there = log_probabilities.device
        placed: Any = [one.to(there) if isinstance(one, torch.Tensor) else one for one in lengths]
        return ctc_loss(log_probabilities, targets.to(there), *placed)

    with ExitStack() as stack:
        stack.enter_context(mode or DeviceMode())
        stack.enter_context(
            patched(
                torch,
                "ctc_loss",
                placed_ctc_loss,
                why="the CPU's kernel takes its lengths in another place",
            )
        )
        stack.enter_context(
            patched(
                fake_tensor,
                "init_gpu_context",
                lambda device: None,
                why="no GPU is there to be made ready for fake tensors that PyTorch puts on it",
            )
        )
        for name, method in _METHODS.items():
            for kind in kinds:
                stack.enter_context(
                    patched(kind, name, method, why="devices of fake tensors answer by their place")
                )
        for owner, name, stand_in in (*numbers, *tensors_of_data()):
            stack.enter_context(
                patched(
                    owner,
                    name,
                    stand_in,
                    why="what takes a device, or moves to one, goes by the place of tensors",
                )
            )
        group = torch._C._group_tensors_by_device_and_dtype
        name = "_group_tensors_by_device_and_dtype"
        stack.enter_context(
            patched(
                torch._C,
                name,
                _by_place(group),
                why="foreach kernels group tensors by device, which here is their place",
            )
        )
        yield
