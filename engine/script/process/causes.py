"""Why a script failed: what is missing here, rather than wrong in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from .sandbox import NO_NETWORK

_WORDS = re.compile(r"(?i)\bhugging ?face hub\b|\bon the hub\b|\boffline mode\b|huggingface\.co")


def wants_network(error: BaseException) -> bool:
    """Whether it failed for a file that it would have downloaded.

    Libraries turn the error of the connection into others, of which some keep only its words.
    """
    return any(
        isinstance(one, LocalEntryNotFoundError | OfflineModeIsEnabled)
        or NO_NETWORK in str(one)
        or (isinstance(one, OSError | LookupError) and _WORDS.search(str(one)) is not None)
        for one in _chain(error)
    )


def missing_package(error: BaseException) -> str:
    """The package that could not be imported, by its module; empty if that was not it."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    return error.name.partition(".")[0]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
