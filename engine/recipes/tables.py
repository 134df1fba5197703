"""Tables of a framework's keys: for each, what it does to a training step.

A table has every key of one release. A key is *read* (it decides about the step), *unused* (it does
nothing to memory or speed), or *refused* where it has any value but a few: it matters, and no field
of a request expresses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Role(Enum):
    """The treatment of a key."""

    READ = "read"
    UNUSED = "not used"
    REFUSED = "refused"


class Form(Enum):
    """Form of a value, with how it is asked for."""

    SWITCH = "true or false"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXT = "text"
    NAMES = "a name, or a list of names"
    MAPPING = "a mapping of keys"
    ANY = "a value"


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a framework.

    Attributes:
        default: What the release takes where it is left out.
        field: The field of a request that it sets by itself; empty where keys decide together.
        told: Whether an answer names the default even where it is off.
        reason: Why it is refused, and the way out.
        harmless: Values that are not refused.
    """

    role: Role
    form: Form = Form.ANY
    default: Any = None
    field: str = ""
    told: bool = False
    reason: str = ""
    harmless: tuple[Any, ...] = ()


UNUSED = Key(role=Role.UNUSED)


def switch(default: bool | None = False, *, field: str = "", told: bool = False) -> Key:
    return Key(role=Role.READ, form=Form.SWITCH, default=default, field=field, told=told)


def whole(default: int | None = None, *, field: str = "") -> Key:
    return Key(role=Role.READ, form=Form.WHOLE, default=default, field=field)


def number(default: float | None = None) -> Key:
    return Key(role=Role.READ, form=Form.NUMBER, default=default)


def text(default: str | None = None, *, field: str = "") -> Key:
    return Key(role=Role.READ, form=Form.TEXT, default=default, field=field)


def names(default: str | None = None) -> Key:
    return Key(role=Role.READ, form=Form.NAMES, default=default)


def mapping() -> Key:
    return Key(role=Role.READ, form=Form.MAPPING)


def anything(default: Any = None, *, told: bool = False) -> Key:
    return Key(role=Role.READ, default=default, told=told)


def refused(reason: str, *, unless: tuple[Any, ...] = ()) -> Key:
    """A key that matters and is not predicted, except for values that change nothing."""
    return Key(role=Role.REFUSED, reason=reason, harmless=(None, False, *unless))


def words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


def unused(listed: str) -> dict[str, Key]:
    """Keys that change neither memory nor speed of a step, by their names with spaces between."""
    return dict.fromkeys(listed.split(), UNUSED)


def all_refused(listed: str, reason: str, *, unless: tuple[Any, ...] = ()) -> dict[str, Key]:
    """Several keys that are refused for one reason."""
    return dict.fromkeys(listed.split(), refused(reason, unless=unless))
