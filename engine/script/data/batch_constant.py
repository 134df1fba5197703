"""The batch size that a script has as a number in its own file, such as ``batch_size = 16``.

Scripts that draw their batches themselves often have neither a ``DataLoader`` nor flags. Where one
number in the file is bound to a usual name of a batch size, the script is compiled with another
number in that place, and the file stays as it is.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...versions.patches import patched

_NAMES = frozenset({"batchsize", "bs", "bsz", "trainbatchsize", "minibatchsize", "microbatchsize"})
"""Usual names, in lower case and without underscores."""


@dataclass(frozen=True)
class BatchConstant:
    """A number that a script binds to the name of a batch size.

    Attributes:
        name: The name.
        value: The number.
        line: Its line, from 1.
        start: Its first byte in the line.
        end: The byte after its last.
    """

    name: str
    value: int
    line: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value:,} in line {self.line:,}"

    def replaced(self, source: bytes, batch_size: int) -> bytes:
        """The source with another batch size in its place; all lines stay where they are."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + str(batch_size).encode() + line[self.end :]
        return b"".join(lines)


def batch_constant(path: str | Path) -> BatchConstant | None:
    """The number in a file that sets its batch size; ``None`` if there is none, or several are."""
    try:
        source = Path(path).read_bytes()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return None  # running it says why
    found = [
        BatchConstant(name, value.value, value.lineno, value.col_offset, value.end_col_offset or 0)
        for name, value in _bound(tree)
        if name.replace("_", "").lower() in _NAMES
        and isinstance(value, ast.Constant)
        and type(value.value) is int
        and value.value > 0
    ]
    if len(found) != 1:
        return None
    (constant,) = found
    # The compiler counts bytes of UTF-8, in which a file need not be written.
    written = source.splitlines()[constant.line - 1][constant.start : constant.end]
    return constant if written.replace(b"_", b"") == str(constant.value).encode() else None


def _bound(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and the expressions that are bound to them: by assignments, defaults and keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((one.id, node.value) for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            defaults = zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True)
            yield from ((argument.arg, value) for argument, value in defaults)
            keywords = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from ((argument.arg, value) for argument, value in keywords if value)
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


@contextmanager
def compiled_with(path: str, constant: BatchConstant, batch_size: int) -> Iterator[None]:
    """Let ``runpy`` compile a script with another batch size, for as long as the context lasts."""
    file = Path(path).resolve()
    open_code = io.open_code

    def opened(name: str) -> IO[bytes]:
        if Path(name).resolve() != file:
            return open_code(name)
        return io.BytesIO(constant.replaced(file.read_bytes(), batch_size))

    with patched(
        io, "open_code", opened, why="a script has its batch size as a number in its own file"
    ):
        yield
