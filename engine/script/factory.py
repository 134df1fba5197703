"""Factories of training steps: how a script is named, found and loaded.

``make_step(batch_size)`` is a factory in the user's module. It creates everything that training
needs and returns a function without arguments; each call of that function runs one whole training
step. A factory that can accumulate is ``make_step(batch_size, gradient_accumulation=1)``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..core.errors import EngineError, InvalidInput, in_one_line
from ..core.parsing import shown

Step = Callable[[], object]
MakeStep = Callable[[int], Step]

_NAME = re.compile(r"(?!.*\.py:)[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_EXAMPLE = "write module:function, such as my_training:make_step"

_ACCUMULATION = "gradient_accumulation"

TRACING = tuple(
    Path(__file__).parents[1] / room for room in ("script", "tracing", "parallel", "prediction")
)
"""The parts of the engine that stand between a script's line and what it does."""

_loading: list[str] = []
"""Names of the factories whose modules are being imported right now."""


class ScriptFailed(EngineError):
    """The script raised an error, or its factory does not return training steps."""

    code = "script_failed"


@dataclass(frozen=True)
class Factory:
    """Location of a factory of training steps.

    Attributes:
        name: ``module:function``, with the module named as in ``import``.
        search_path: Folders to look for modules in, besides ``sys.path``.
        gradient_accumulation: Micro-batches per step; passed to the function if more than one.
    """

    name: str
    search_path: tuple[str, ...] = ()
    gradient_accumulation: int = 1

    @classmethod
    def of(cls, make_step: str | MakeStep) -> Factory:
        """The factory for a name or a function.

        Raises:
            InvalidInput: For ``factory``, if another process could not import it by its name.
        """
        name = make_step if isinstance(make_step, str) else _name_of(make_step)
        if len(name) > 500 or not _NAME.fullmatch(name):
            raise InvalidInput({"factory": f"{shown(name)} is not a function; {_EXAMPLE}"})
        factory = cls(name, tuple(str(Path(folder).absolute()) for folder in sys.path))
        # Finding a module inside a package means importing the package, which comes later.
        package = factory.module.partition(".")[0]
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise InvalidInput(
                {
                    "factory": f"there is no module {package}; run from the folder that contains "
                    f"{package}.py, or add that folder to PYTHONPATH"
                }
            )
        return factory

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Factory:
        """The inverse of ``dataclasses.asdict``, after JSON."""
        return cls(**{**fields, "search_path": tuple(fields["search_path"])})

    @property
    def wants_data(self) -> str:
        """Advice for when the batch size that it gets changes nothing."""
        return "its data must have as many samples as the batch_size passed to the factory"

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]

    def load(self) -> MakeStep:
        """Import the module, which runs it, and return the function, to call with a batch size.

        Raises:
            InvalidInput: For ``factory``, if the module has no such function, or it cannot
                accumulate gradients but has to.
            ScriptFailed: If the module raised an error.
        """
        make_step = self._imported()
        if self.gradient_accumulation == 1:
            return make_step
        if not _takes(make_step, _ACCUMULATION):
            raise InvalidInput(
                {
                    "factory": f"{self.name} has no argument {_ACCUMULATION}; add one (default "
                    "1), and let each step run that many micro-batches of batch_size"
                }
            )
        return partial(make_step, **{_ACCUMULATION: self.gradient_accumulation})

    def _imported(self) -> Callable[..., Step]:
        """The function itself, which takes a batch size and any number of optional arguments."""
        module, _, function = self.name.partition(":")
        sys.path.extend(folder for folder in self.search_path if folder not in sys.path)
        _loading.append(self.name)
        try:
            found = getattr(importlib.import_module(module), function, None)
        except EngineError:
            raise
        except (Exception, SystemExit) as error:
            raise ScriptFailed(f"importing {module} failed{self.describe(error)}") from error
        finally:
            _loading.pop()
        if not callable(found):
            raise InvalidInput({"factory": f"{module} has no function {function}"})
        if why := cannot_be_called(found, 1):
            raise InvalidInput({"factory": f"{self.name} must take just a batch size: {why}"})
        make_step: Callable[..., Step] = found
        return make_step

    def words(self) -> tuple[list[str], list[str]]:
        """Arguments that name it on our own command line: before our flags, and after them."""
        return ["--factory", self.name], []

    def describe(self, error: BaseException) -> str:
        """An error of the script as text: where it came from, and what it was."""
        return f"{self.where(error)}: {summary(error)}"

    def where(self, error: BaseException) -> str:
        """``at FILE, line N (code)`` in the folder of the factory's module; see :func:`line_in`."""
        return line_in(self.file.parent, error) if self.file else ""

    @property
    def file(self) -> Path | None:
        """The file of its module; ``None`` while it is not imported."""
        file = getattr(sys.modules.get(self.module), "__file__", None)
        return Path(file) if file else None


def summary(error: BaseException) -> str:
    """The kind of an error and its first line, or that it says nothing; and what it came of."""
    came_of = "" if error.__cause__ is None else f", which came of {summary(root(error))}"
    return f"{in_one_line(error)}{came_of}"


def root(error: BaseException) -> BaseException:
    """The error that an error says it was raised from, and so on."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def line_in(folder: Path, error: BaseException) -> str:
    """`` at FILE, line N (code)`` for the innermost line in a folder of an error's traceback.

    Empty if there is none. Installed packages do not count, though they may lie in it.
    """
    return innermost(folder, traceback.extract_tb(error.__traceback__))


def innermost(folder: Path, frames: traceback.StackSummary) -> str:
    """The same for a stack, its outermost frame first."""
    folder = folder.resolve()
    for frame in reversed(frames):
        path = Path(frame.filename).resolve()
        ours = any(path.is_relative_to(room) for room in TRACING)
        if path.is_relative_to(folder) and not ours and "site-packages" not in path.parts:
            code = f" ({frame.line})" if frame.line else ""
            return f" at {path.relative_to(folder)}, line {frame.lineno}{code}"
    return ""


def refuse_while_loading() -> None:
    """Refuse to analyse a factory while its own module is being imported: it would never end.

    Raises:
        InvalidInput: For ``factory``.
    """
    if _loading:
        raise InvalidInput(
            {
                "factory": f"importing {_loading[-1].partition(':')[0]} starts an analysis itself; "
                'put that call under `if __name__ == "__main__":`'
            }
        )


def cannot_be_called(function: Callable[..., object], *arguments: object) -> str:
    """Why a function cannot be called with these arguments; empty if it can."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        return str(error)
    except ValueError:  # no signature is known, as for some functions written in C
        return ""
    return ""


def _takes(function: Callable[..., object], argument: str) -> bool:
    """Whether a function accepts an argument by that name."""
    parameters = inspect.signature(function).parameters
    anything = any(known.kind is known.VAR_KEYWORD for known in parameters.values())
    return anything or argument in parameters


def _name_of(function: Callable[..., object]) -> str:
    """The name by which another process can import a function."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if "<" in name or "." in name or not name:
        raise InvalidInput(
            {
                "factory": f"{shown(name or function)} cannot be imported by another process; use "
                "a function at the top level of a module, not a lambda, method or nested function"
            }
        )
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else ""
        if not module:
            raise InvalidInput(
                {"factory": f"move {name} into a file, such as my_training.py, and import it"}
            )
    return f"{module}:{name}"
