"""Names of packages that the engine lets stand for something else, for as long as a context lasts.

Whatever is replaced in torch, transformers and others, in a process that predicts, is replaced by
:func:`patched`, which asks for the reason. ``python -m engine.versions.patches`` lists all of them:
where, what, and why. A test fails where one is replaced in another way.
"""

from __future__ import annotations

import ast
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

_ENGINE = Path(__file__).resolve().parent.parent


def patched(
    owner: Any, name: str, value: Any, *, why: str, is_missing_in_some: bool = False
) -> AbstractContextManager[Any]:
    """Let a name of a package stand for something else, for as long as the context lasts.

    Args:
        owner: The module, class or object that has the name.
        name: The name.
        value: What it stands for.
        why: The reason, for who reads the list; not used otherwise.
        is_missing_in_some: Whether some releases or builds do not have the name.

    Raises:
        AttributeError: If the name is not there.
    """
    return patch.object(owner, name, value, create=is_missing_in_some)


@dataclass(frozen=True)
class Patch:
    """A place in the engine's source where a name is replaced.

    Attributes:
        file: Path below the engine.
        target: The name that is replaced, as the source has it.
        why: The reason.
    """

    file: str
    line: int
    target: str
    why: str


def patches() -> list[Patch]:
    """All of them, read from the source."""
    found = []
    for file in sorted(_ENGINE.rglob("*.py")):
        if "tests" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "patched":
                found.append(_patch(file.relative_to(_ENGINE).as_posix(), node))
    return found


def _patch(file: str, call: ast.Call) -> Patch:
    owner, name, *_ = call.args
    said = {one.arg: one.value for one in call.keywords}["why"]
    is_named = isinstance(name, ast.Constant)
    target = ast.literal_eval(name) if is_named else f"<{ast.unparse(name)}>"
    why = str(ast.literal_eval(said))
    return Patch(file, call.lineno, f"{ast.unparse(owner)}.{target}", why)


def main() -> None:
    """Write the list, a line for each."""
    for one in patches():
        sys.stdout.write(f"{one.file}:{one.line}: {one.target}: {one.why}\n")


if __name__ == "__main__":
    main()
