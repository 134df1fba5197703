"""A framework whose recipes are read, in one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .settings import Settings
from .tables import Key


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework whose recipes are read.

    Attributes:
        name: As ``--framework`` takes it.
        title: As its makers write it.
        release: The release whose source the table was taken from.
        repository: Its repository on GitHub, at the tag ``v`` + ``release``.
        needed: Keys that each of its recipes has.
        marks: Keys of which a recipe has at least one, and which no other framework here has.
        keys: All keys of the release.
        derive: Sets the fields of a request, from the settings of a recipe.
        former_names: Keys that earlier releases call otherwise, with their names now.
        also: More keys that change nothing, given all that a recipe has.
    """

    name: str
    title: str
    release: str
    repository: str
    needed: frozenset[str]
    marks: frozenset[str]
    keys: Mapping[str, Key]
    derive: Callable[[Settings], None]
    former_names: Mapping[str, str] = field(default_factory=dict)
    also: Callable[[Mapping[str, Any]], frozenset[str]] = field(default=lambda _: frozenset())

    @property
    def named(self) -> str:
        """Title and release."""
        return f"{self.title} {self.release}"

    @property
    def source(self) -> str:
        """Where the meaning of its keys was read."""
        return f"github.com/{self.repository}/tree/v{self.release}"
