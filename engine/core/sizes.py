"""Amounts of memory as people read them."""

from __future__ import annotations

from .numbers import UNKNOWN

GIB = 2**30


def gib(size: float | None, decimals: int = 2) -> str:
    """Format a number of bytes, such as ``1,021.43 GiB``; a dash if it is not known."""
    return UNKNOWN if size is None else f"{gib_number(size, decimals)} GiB"


def gib_number(size: float | None, decimals: int = 2) -> str:
    """The same without the unit, for a column whose heading has it.

    A small amount is never rounded to zero: it becomes ``<0.01``.
    """
    if size is None:
        return UNKNOWN
    amount, least = size / GIB, 10**-decimals
    return f"<{least:g}" if 0 < amount < least / 2 else f"{amount:,.{decimals}f}"


def in_gib(size: float, decimals: int = 4) -> float:
    """A number of bytes in GiB, rounded, for charts and for programs."""
    return round(size / GIB, decimals)


def gib_of(size: float, whole: float, decimals: int = 2) -> str:
    """Format a part of an amount, both in bytes, such as ``21.43 of 22.07 GiB``."""
    return f"{gib_number(size, decimals)} of {gib(whole, decimals)}"
