"""Stand-ins that take what the functions take in whose place they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

_signature = lru_cache(maxsize=1024)(inspect.signature)
"""Hundreds are replaced for each trace, few of them called, and some at every operator."""


def taking_the_same(real: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a function, with its arguments: their names, defaults and kinds.

    Args:
        real: The function that is replaced.
        answer: Receives all arguments by name, also those that were left out.
    """

    @wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = _signature(real).bind(*args, **kwargs)
        given.apply_defaults()
        return answer(**given.arguments)

    return call
