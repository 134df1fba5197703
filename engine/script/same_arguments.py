"""Stand-ins that take what the functions take in whose place they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def taking_the_same(real: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a function, with its arguments: their names, defaults and kinds.

    Args:
        real: The function that is replaced.
        answer: Receives all arguments by name, also those that were left out.
    """
    signature = inspect.signature(real)

    @wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return answer(**given.arguments)

    return call
