"""The options of PyTorch's CUDA caching allocator, as ``PYTORCH_ALLOC_CONF`` has them.

Source of every option and check: ``c10/core/AllocatorConfig.cpp`` and
``c10/cuda/CUDAAllocatorConfig.cpp`` of PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import plain_text, shown, whole_number

_MIB = 2**20
_FIRST_INTERVAL_BITS = 20
_INTERVALS = 16
"""Divisions are given for each power of two from 1 MiB on (``kRoundUpPowerOfTwoIntervals``)."""
_MIN_SPLIT_MIB = 20
_MAX_SPLIT_MIB = 2**40
_MAX_DIVISIONS = 2**20

_NO_EFFECT = {
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
}
"""Options taken and passed over: they concern host memory or locks, and the garbage collection runs
only in a process that was given a share of the GPU (``set_per_process_memory_fraction``)."""


@dataclass(frozen=True)
class AllocatorOptions:
    """Options of the caching allocator; by default PyTorch's own defaults.

    Attributes:
        expandable_segments: Whether one segment grows by pages, in place of many of fixed size.
        max_split_bytes: Blocks from this size on are never split; ``None`` splits all.
        roundup_power2_divisions: Number of parts into which the span from one power of two to the
            next is divided, for requests to be rounded up to; one for each power of two from
            1 MiB up, zero for none. Empty: none at all.
    """

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    roundup_power2_divisions: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllocatorOptions:
        """The options of a ``PYTORCH_ALLOC_CONF`` string; the default for an empty one.

        Raises:
            InvalidInput: For the field ``allocator``, if PyTorch would refuse it or if what it does
                is not predicted.
        """
        wrong: dict[str, str] = {}
        if text != "":
            plain_text("allocator", text, wrong)
        if wrong:
            raise InvalidInput(wrong)
        fields: dict[str, Any] = {}
        for option in _split(re.sub(r"\s", "", text)):
            name, colon, value = option.partition(":")
            if not colon or not value:
                raise _refused(
                    f"{shown(option)} is not an option; write name:value, as in {_EXAMPLE}"
                )
            if name in _NO_EFFECT:
                continue
            if name == "backend":
                _check_backend(value)
            elif name in _READERS:
                field, read = _READERS[name]
                fields[field] = read(value)
            else:
                known = ", ".join(sorted([*_READERS, *_NO_EFFECT]))
                raise _refused(f"{shown(name)} is not predicted; known options are {known}")
        return cls(**fields)

    def round_up(self, size: int, unit: int) -> int:
        """The bytes of the block that a request is given: a multiple of ``unit``.

        Args:
            size: The request, in bytes; above zero.
            unit: The smallest block.
        """
        if self.roundup_power2_divisions and size >= unit:
            power = size.bit_length() - 1
            interval = min(max(power - _FIRST_INTERVAL_BITS, 0), _INTERVALS - 1)
            # All below 1 MiB share the first interval, all from 32 GiB on the last.
            divisions = self.roundup_power2_divisions[interval]
            # Smaller requests would have parts below one block.
            if divisions > 1 and size > unit * divisions:
                unit = (1 << power) // divisions
        return -(-size // unit) * unit


def _refused(message: str) -> InvalidInput:
    return InvalidInput({"allocator": message})


def _split(text: str) -> list[str]:
    """The options, separated by commas outside brackets."""
    # A list of divisions has commas of its own.
    return re.split(r",(?![^\[]*\])", text) if text else []


def _check_backend(value: str) -> None:
    if value != "native":
        raise _refused("only the native backend is predicted; leave backend out")


def _read_expandable(value: str) -> bool:
    if value not in ("True", "False"):
        raise _refused(f"expandable_segments takes True or False, not {shown(value)}")
    return value == "True"


def _read_max_split(value: str) -> int:
    bounds = (_MIN_SPLIT_MIB, _MAX_SPLIT_MIB)
    return _number("max_split_size_mb", value, *bounds) * _MIB


def _read_divisions(value: str) -> tuple[int, ...]:
    """One number for all intervals, or a list such as ``[256:1,512:2,>:4]``, sizes in MiB.

    What lies below the first size of a list is divided as it, what lies between two sizes not at
    all, and ``>`` is for all above the last.
    """
    if not value.startswith("["):
        return (_power_of_two(value, smallest=1),) * _INTERVALS
    if not value.endswith("]"):
        raise _refused(f"roundup_power2_divisions: {shown(value)} wants a closing bracket")
    divisions = [0] * _INTERVALS
    last: int | None = None
    for pair in value[1:-1].split(","):
        size, _, number = pair.partition(":")
        wanted = _power_of_two(number, smallest=0)
        if size == ">":
            begin = 0 if last is None else last + 1
            divisions[begin:] = [wanted] * (_INTERVALS - begin)
            continue
        interval = min(_power_of_two(size, smallest=1).bit_length() - 1, _INTERVALS - 1)
        if last is None:  # only the first size speaks for what lies below it
            divisions[:interval] = [wanted] * interval
        divisions[interval] = wanted
        last = interval
    return tuple(divisions)


def _power_of_two(text: str, *, smallest: int) -> int:
    number = _number("roundup_power2_divisions", text, smallest, _MAX_DIVISIONS)
    if number & (number - 1):
        raise _refused(f"roundup_power2_divisions: {number} is not a power of two")
    return number


def _number(option: str, text: str, smallest: int, largest: int) -> int:
    wrong: dict[str, str] = {}
    number = whole_number(option, text, smallest, largest, wrong)
    if number is None:
        raise _refused(f"{option}: {wrong[option]}")
    return number


_EXAMPLE = "expandable_segments:True,max_split_size_mb:128"

_READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "expandable_segments": ("expandable_segments", _read_expandable),
    "max_split_size_mb": ("max_split_bytes", _read_max_split),
    "roundup_power2_divisions": ("roundup_power2_divisions", _read_divisions),
}
