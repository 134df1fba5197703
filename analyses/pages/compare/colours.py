"""The colour of each compared analysis: the same in table, curves, bars and legends."""

from __future__ import annotations

LIGHT = (
    "#2f6f9f", "#007a45", "#b37400", "#8a4fc0", "#c9481f", "#c2307a", "#00838f", "#5c7d00",
    "#5f5fd0", "#8c5a3c", "#1f8fd6", "#6b7075",
)  # fmt: skip
"""As in the light theme's style sheet, for a picture that has none."""

_DASHES = ("solid", "dash")


def series(number: int) -> int:
    """The number of the colour in the style sheet."""
    return number % len(LIGHT)


def colour(number: int) -> str:
    """The colour by the theme, as a chart names it."""
    return f"var(--series-{series(number)})"


def light(number: int) -> str:
    return LIGHT[series(number)]


def dash(number: int) -> str:
    """The second analysis of a colour has a dashed line."""
    return _DASHES[number // len(LIGHT) % len(_DASHES)]
