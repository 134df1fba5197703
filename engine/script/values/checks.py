"""Checks of values in code, which a training run passes.

``assert (boxes > 0).all()`` and ``if loss.isnan(): raise`` end a run that they do not like. Steps
that train have passed them, so the truth that they ask for is known from the code alone.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cache


def passing_truth(file: str, number: int) -> bool | None:
    """Truth of every tensor that a check on a line asks, where it is passed.

    Args:
        file: The file of the code.
        number: The line, from 1.

    Returns:
        ``None`` if the line checks nothing, or its tensors need to differ in truth.
    """
    return _checks_in(file).get(number)


@cache
def _checks_in(file: str) -> dict[int, bool]:
    """The passing truth of the lines of a file that check something."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # it is no Python, such as a cell of a notebook
        return {}
    return dict(_checks(tree))


def _checks(tree: ast.AST) -> Iterator[tuple[int, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            wanted, test = True, node.test
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            wanted, test = False, node.test
        else:
            continue
        truths = set(_truths(test, wanted))
        if len(truths) == 1:
            lines = range(test.lineno, (test.end_lineno or test.lineno) + 1)
            yield from dict.fromkeys(lines, truths.pop()).items()


def _truths(test: ast.expr, wanted: bool) -> Iterator[bool]:
    """Truths of the parts of a condition with which it is as wanted."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _truths(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _truths(part, wanted)
    else:
        yield wanted
