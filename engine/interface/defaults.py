"""The defaults that a request has taken where they decide its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..models.tasks import SIZES
from .program import AnyRequest
from .request import FIELDS, AnalysisRequest

DECISIVE = ("precision", "optimizer", *SIZES)
"""The fields whose defaults an answer names: another value often gives another batch."""


def left_out(given: Mapping[str, object], request: AnyRequest) -> list[str]:
    """The decisive fields of a request that the untrusted fields leave to their defaults.

    None of a script's, whose code decides them.
    """
    has = request.to_dict()
    named = [name for name in DECISIVE if has.get(name) is not None]
    return [name for name in named if given.get(name) in (None, "")]


def format_values(request: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values that these fields have in a request, such as ``fp32, adamw, 2,048 tokens``."""
    values = [(name, request.get(name)) for name in names]
    return ", ".join(
        f"{_format(value)} {FIELDS[name].unit_of(value)}".strip()
        for name, value in values
        if value is not None
    )


def _format(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def defaults_taken(given: Mapping[str, object], request: AnalysisRequest) -> list[str]:
    """A caveat about the decisive settings that were left out; none if all are given.

    Args:
        given: Untrusted fields.
        request: Parsed from them.
    """
    taken = format_values(request.to_dict(), left_out(given, request))
    return [f"Assumed, since it was not given: {taken}."] if taken else []
