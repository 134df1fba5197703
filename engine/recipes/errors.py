"""Errors about recipes."""

from __future__ import annotations

from ..core.errors import InvalidInput

FIELD = "recipe"
"""The name of the file as a whole, for messages."""


class InvalidRecipe(InvalidInput):
    """A recipe is wrong, or asks for what is not predicted.

    Its messages are by keys of the recipe and by flags, as people read them.
    """


class UnknownFramework(InvalidRecipe):
    """Its keys do not tell which framework it is for; whoever has it can name that."""


def wrong(message: str) -> InvalidRecipe:
    """An error about the file as a whole."""
    return InvalidRecipe({FIELD: message})
