"""Checks of single untrusted values, for training jobs: with the standard library alone.

Elsewhere :mod:`engine.core.border` checks whole data classes with pydantic, with similar messages.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TypeVar

from .errors import InvalidInput

_Made = TypeVar("_Made")
_MAX_NAMED = 10

MAX_TEXT_LENGTH = 500


def collect(make: Callable[[], _Made], wrong: dict[str, str]) -> _Made | None:
    """The result of ``make``; if its input is invalid, ``None``, and its messages in ``wrong``."""
    try:
        return make()
    except InvalidInput as error:
        wrong |= error.fields
        return None


def unknown_fields(given: Iterable[object], known: Iterable[str]) -> dict[str, str]:
    """Messages for unknown fields, at most a few; the first of them lists the known ones.

    A 1 MB request with 100,000 unknown fields would else get an answer many times as long.
    """
    names = sorted({str(name) for name in given} - set(known))
    wrong = {_cut(name): "unknown field" for name in names[:_MAX_NAMED]}
    if names:
        wrong[_cut(names[0])] += f"; known are {', '.join(sorted(known))}"
    if len(names) > _MAX_NAMED:
        wrong[_cut(names[_MAX_NAMED])] = f"unknown field, as {len(names) - _MAX_NAMED:,} more are"
    return wrong


def choice(name: str, value: object, allowed: Iterable[str], wrong: dict[str, str]) -> bool:
    """Whether ``value`` is one of ``allowed``; if not, ``wrong[name]`` says which are."""
    options = [str(option) for option in allowed]
    if isinstance(value, str) and str(value) in options:
        return True
    wrong[name] = f"choose one of {', '.join(options)}"
    return False


def whole_number(
    name: str, value: object, smallest: int, largest: int, wrong: dict[str, str]
) -> int | None:
    """``value`` as an integer within the bounds; else ``None`` and a message in ``wrong[name]``.

    Text is accepted where it is a plain decimal number; ``True``, ``2.5`` and ``"1e3"`` are not.
    """
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 18:
            number = int(value)
    if number is not None and smallest <= number <= largest:
        return number
    wrong[name] = f"enter a whole number from {smallest:,} to {largest:,}"
    return None


def positive_number(
    name: str, value: object, largest: float, wrong: dict[str, str]
) -> float | None:
    """``value`` as a float with ``0 <= value <= largest``; else ``None`` and a message."""
    number: float | None = None
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = None
    if number is not None and 0 <= number <= largest:
        return number
    wrong[name] = f"enter a number from 0 to {largest:,.0f}"
    return None


def yes_or_no(name: str, value: object, wrong: dict[str, str]) -> bool:
    """``value`` as a switch: ``true``, ``yes``, ``on``, ``1`` or their opposites."""
    word = str(value).strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word not in ("false", "no", "off", "0"):
        wrong[name] = "enter true or false"
    return False


def plain_text(name: str, value: object, wrong: dict[str, str]) -> None:
    """Check that ``value`` is printable text of bounded length."""
    if not (isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_TEXT_LENGTH):
        wrong[name] = f"enter at most {MAX_TEXT_LENGTH} characters of text"


def shown(value: object) -> str:
    """``value`` for a message: quoted, and cut if it is long."""
    return repr(_cut(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"


_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,6})?) ?(?P<unit>[kmgt]i?b|b)", re.IGNORECASE)
_POWERS = "bkmgt"


def bytes_of(size: str) -> int | str:
    """The bytes in ``8GiB``, ``500 MiB`` or ``16GB``.

    Args:
        size: A number with a unit (powers of 1024 with an ``i``, of 1000 without), or a plain
            number, which is returned as it is, to be checked later.

    Raises:
        InvalidInput: It is neither.
    """
    if re.fullmatch(r"-?[0-9]*", size):
        return size
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        message = f"{shown(size)} is not a size; write 8GiB, 500MiB, 16GB or bytes"
        raise InvalidInput({"memory_limit_bytes": message})
    unit = match["unit"].lower()
    base = 1024 if "i" in unit else 1000
    return int(Decimal(match["number"]) * base ** _POWERS.index(unit[0]))
