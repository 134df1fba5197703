"""Training scripts as they are: the file, its arguments, and the way it gets its batch size.

``python train.py --lr 1e-4`` is a :class:`Program`. It is not changed: it gets its batch size from
one of its own flags, from an environment variable, from the ``DataLoader`` that feeds its steps, or
from a number in its file, which then is compiled with another.
"""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from .factory import innermost, line_in, summary
from .moves.kinds import ScriptMove

SUFFIX = ".py"
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_POSITION = re.compile(r"\bargv\[-?[1-9]\d*\]")


@dataclass(frozen=True)
class Program:
    """A training script that runs by itself.

    Where neither ``batch_flag`` nor ``batch_env`` is set, the batch size is that of the
    ``DataLoader`` that feeds the steps.

    Attributes:
        path: The file, absolute.
        arguments: Its command line.
        batch_flag: The flag that sets its batch size, with or without dashes. One that ends in
            ``=`` is joined to its value.
        batch_env: The environment variable that does.
        loaders: The positions of the ``DataLoader``s that feed the steps among all that it makes,
            where these set the batch size.
        by_constant: Whether a number in its own file does.
        gradient_accumulation: Micro-batches to a step of the script, as far as the user says so;
            the script is not told.
        launch: Accelerate's config that it is launched with, whose variables this process has.
        moves: The moves that are made in it while it is traced.
    """

    path: str
    arguments: tuple[str, ...] = ()
    batch_flag: str = ""
    batch_env: str = ""
    loaders: tuple[int, ...] = ()
    gradient_accumulation: int = 1
    by_constant: bool = False
    launch: str = ""
    moves: tuple[ScriptMove, ...] = ()

    @classmethod
    def of(
        cls,
        path: str | Path,
        arguments: Sequence[str] = (),
        batch_flag: str | None = None,
        batch_env: str | None = None,
        launch: str | None = None,
    ) -> Program:
        """The program for a file.

        Raises:
            InvalidInput: For ``model``, ``batch_flag`` or ``batch_env``.
        """
        wrong: dict[str, str] = {}
        file = Path(path)
        if not file.is_file():
            wrong["model"] = f"there is no file {path}; enter the path of your training script"
        if batch_flag is not None and not re.fullmatch(r"[-+]*\w[\w.\-]*=?", batch_flag):
            wrong["batch_flag"] = (
                f"{shown(batch_flag)} is not the name of a flag; write one such as batch_size"
            )
        if batch_env is not None and not re.fullmatch(r"[^\W\d]\w*", batch_env):
            wrong["batch_env"] = (
                f"{shown(batch_env)} is not the name of an environment variable; write one such "
                "as BATCH_SIZE"
            )
        if batch_flag and batch_env:
            wrong["batch_env"] = "pass --batch-flag or --batch-env, not both"
        if wrong:
            raise InvalidInput(wrong)
        return cls(
            str(file.absolute()),
            tuple(arguments),
            batch_flag or "",
            batch_env or "",
            launch=launch or "",
        )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Program:
        """The inverse of ``dataclasses.asdict``, after JSON."""
        lists = {name: tuple(fields[name]) for name in ("arguments", "loaders", "moves")}
        return cls(**{**fields, **lists})

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return Path(self.path).name

    @property
    def folder(self) -> Path:
        """The folder of the file, in which Python looks for its modules."""
        return Path(self.path).parent

    @property
    def automatic(self) -> bool:
        """Whether the batch size is set in the ``DataLoader`` itself, or in the file."""
        return not (self.batch_flag or self.batch_env)

    @property
    def wants_data(self) -> str:
        """Advice for when the batch size that it gets changes nothing."""
        if self.automatic:
            unlike = "the number in its file is none, so " if self.by_constant else ""
            return f"{unlike}pass the flag that sets its batch size (--batch-flag)"
        given = self.batch_flag or self.batch_env
        return f"{given} does not set its batch size, or something else sets it again"

    def command_line(self, batch_size: int | None) -> list[str]:
        """Its arguments at a batch size; ``None`` for its own."""
        if batch_size is None or not self.batch_flag:
            return list(self.arguments)
        file = Path(self.path)
        source = file.read_text("utf-8", "replace") if file.is_file() else ""
        counts_words = bool(_POSITION.search(source))  # it finds arguments by their positions
        flag = spelled_in(source, self.batch_flag)
        return with_flag(self.arguments, flag, batch_size, joined=not counts_words)

    def environment(self, batch_size: int | None) -> dict[str, str]:
        """The variables that it gets at a batch size."""
        if batch_size is None or not self.batch_env:
            return {}
        return {self.batch_env: str(batch_size)}

    def words(self) -> tuple[list[str], list[str]]:
        """Arguments that name it on our own command line: before our flags, and after them."""
        path = Path(self.path)
        here = Path.cwd()
        before = [str(path.relative_to(here) if path.is_relative_to(here) else path)]
        if self.batch_flag:
            before.append(f"--batch-flag={self.batch_flag}")
        if self.batch_env:
            before.append(f"--batch-env={self.batch_env}")
        if self.launch:
            before.append(f"--accelerate-config={self.launch}")
        return before, ["--", *self.arguments] if self.arguments else []

    def describe(self, error: BaseException) -> str:
        """An error of the script as text: where it came from, and what it was."""
        if isinstance(error, SystemExit):
            return f"{self.where(error)}: it ended with status {error.code or 0}"
        return f"{self.where(error)}: {summary(error)}"

    def where(self, error: BaseException) -> str:
        """The innermost line of the script in an error's traceback."""
        return line_in(self.folder, error)

    def line(self, stack: traceback.StackSummary) -> str:
        """The innermost line of the script in a stack."""
        return innermost(self.folder, stack)

    def __str__(self) -> str:
        return shlex.join([self.name, *self.arguments])


def with_flag(arguments: Sequence[str], flag: str, value: int, *, joined: bool = True) -> list[str]:
    """A command line with the value of a flag changed, or with the flag added.

    ``--flag 16``, ``--flag=16`` and Hydra's ``flag=16`` are found, whether the flag is given with
    its dashes or not; dashes and underscores inside its name are alike, as in ``transformers``. A
    long one that is added is joined to its value: parsers of flags take that, and some written by
    hand, as nanoGPT's, take nothing else.

    Args:
        arguments: The command line.
        flag: The flag's name.
        value: Its new value.
        joined: Whether a long flag that is added is joined to its value.
    """
    name = _plain(flag)
    changed, found = list(arguments), False
    for index, word in enumerate(arguments):
        known, equals, _ = word.partition("=")
        if _plain(known) != name or not (equals or word.startswith("-")):
            continue
        if equals:
            changed[index], found = f"{known}={value}", True
        elif index + 1 < len(arguments):
            changed[index + 1], found = str(value), True
    if found:
        return changed
    if flag.endswith("="):
        return [*changed, f"{flag}{value}"]
    dashed = flag if flag.startswith("-") else f"--{flag}"
    if joined and dashed.startswith("--"):
        return [*changed, f"{dashed}={value}"]
    return [*changed, dashed, str(value)]


def spelled_in(source: str, flag: str) -> str:
    """A flag as a script spells it, with dashes or underscores inside its name.

    Args:
        source: The script.
        flag: The flag's name; returned as it is where the script has no such word.
    """
    alike = [word for word in _FLAG.findall(source) if _plain(word) == _plain(flag)]
    is_there = (flag if flag.startswith("-") else f"--{flag}") in alike
    return flag if is_there or not alike or flag.endswith("=") else alike[0]


def _plain(flag: str) -> str:
    """A flag's name without dashes and signs around it."""
    return flag.rstrip("=").lstrip("-+").replace("-", "_")
