"""Names of packages that the engine lets stand for something else.

Whatever is replaced in torch, transformers and others is replaced by a function of this module,
which asks for the reason: for as long as a context lasts (:func:`patched`, :func:`patched_names`,
:func:`emptied`), or for good in a process that runs a script and ends with it
(:func:`patch_for_good`, :func:`patch_names_for_good`, :func:`patch_code`).
``python -m engine.versions.patches`` lists all of them: where, what, and why. A test fails where
one is replaced in another way.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, cast
from unittest.mock import patch

from .loaded_modules import Namespace

Change = tuple[Namespace, str, Any]
"""A namespace, a name in it, and what that name is to stand for."""

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


@contextmanager
def patched_names(changes: Iterable[Change], *, why: str) -> Iterator[None]:
    """Let names of modules, wherever they were imported, stand for something else; in a context.

    Args:
        changes: All are looked up before the first is made. The names have to be there.
        why: As for :func:`patched`.
    """
    before = [(names, name, names[name], value) for names, name, value in changes]
    try:
        for names, name, _, value in before:
            names[name] = value
        yield
    finally:
        for names, name, value, _ in reversed(before):
            names[name] = value


def emptied(
    state: MutableMapping[Any, Any], *, why: str
) -> AbstractContextManager[MutableMapping[Any, Any]]:
    """Empty the state that a package keeps in a dictionary, for as long as the context lasts.

    Args:
        state: The dictionary, which the package holds on to.
        why: As for :func:`patched`.
    """
    return patch.dict(state, clear=True)


def patch_for_good(owner: Any, name: str, value: Any, *, why: str) -> None:
    """Let a name of a package stand for something else for as long as the process lives.

    Args:
        owner: The module, class or object that has the name.
        name: The name; it is added where a release does not have it.
        value: What it stands for.
        why: As for :func:`patched`.
    """
    setattr(owner, name, value)


def patch_names_for_good(changes: Iterable[Change], *, why: str) -> None:
    """Let names of modules stand for something else for as long as the process lives.

    Args:
        changes: Names that are not there are added.
        why: As for :func:`patched`.
    """
    for names, name, value in changes:
        names[name] = value


def patch_code(function: Callable[..., Any], stand_in: Callable[..., Any], *, why: str) -> None:
    """Let a function run another one's code, also where it was imported by its name; for good.

    Args:
        function: The function; neither it nor the other may be a closure.
        stand_in: The one whose code it runs.
        why: As for :func:`patched`.
    """
    cast(FunctionType, function).__code__ = cast(FunctionType, stand_in).__code__


_signature = lru_cache(maxsize=1024)(inspect.signature)
"""Hundreds are replaced for each trace, few of them called, and some at every operator."""


def taking_the_same(real: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a function, with its arguments: their names, defaults and kinds.

    Args:
        real: The function that is replaced.
        answer: Receives all arguments by name, also those that were left out.
    """

    @wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = _signature(real).bind(*args, **kwargs)
        given.apply_defaults()
        return answer(**given.arguments)

    return call


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
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _PATCHING:
                found.append(_patch(file.relative_to(_ENGINE).as_posix(), node))
    return found


_OF_AN_OWNER = {patched.__name__, patch_for_good.__name__}
_PATCHING = {
    *_OF_AN_OWNER,
    *(one.__name__ for one in (patched_names, emptied, patch_names_for_good, patch_code)),
}


def _patch(file: str, call: ast.Call) -> Patch:
    said = {one.arg: one.value for one in call.keywords}["why"]
    target = ast.unparse(call.args[0])
    if ast.unparse(call.func) in _OF_AN_OWNER:
        name = call.args[1]
        is_named = isinstance(name, ast.Constant)
        target += f".{ast.literal_eval(name) if is_named else f'<{ast.unparse(name)}>'}"
    return Patch(file, call.lineno, target, str(ast.literal_eval(said)))


def main() -> None:
    """Write the list, a line for each."""
    for one in patches():
        sys.stdout.write(f"{one.file}:{one.line}: {one.target}: {one.why}\n")


if __name__ == "__main__":
    main()
