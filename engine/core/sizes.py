"""Amounts of memory as people read them."""

from __future__ import annotations

GIB = 2**30


def gib(size: float, decimals: int = 2) -> str:
    """Format a number of bytes, such as ``1,021.43 GiB``."""
    return f"{size / GIB:,.{decimals}f} GiB"


def gib_of(size: float, whole: float, decimals: int = 2) -> str:
    """Format a part of an amount, both in bytes, such as ``21.43 of 22.07 GiB``."""
    return f"{size / GIB:,.{decimals}f} of {gib(whole, decimals)}"
