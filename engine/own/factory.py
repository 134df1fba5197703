"""A person's own training code: named, found and loaded.

``make_step(batch_size)`` is a factory in a module of theirs. It makes everything that one training
needs and returns a function without arguments; each call of that runs one whole training step. One
that can accumulate gradients is ``make_step(batch_size, gradient_accumulation=1)``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.errors import EngineError, InvalidInput
from engine.parsing import shown

Step = Callable[[], object]
MakeStep = Callable[[int], Step]

_NAME = re.compile(r"(?!.*\.py:)[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_EXAMPLE = "write module:function, such as my_training:make_step"

_ACCUMULATION = "gradient_accumulation"

_loading: list[str] = []
"""Names of the factories whose modules are being imported now."""


class OwnCodeFailed(EngineError):
    """The person's own code raised an error, or is no factory of steps."""

    code = "own_code_failed"


@dataclass(frozen=True)
class Factory:
    """Where a factory of training steps is found.

    Attributes:
        name: ``module:function``, the module as ``import`` names it.
        search_path: Folders in which modules are looked for, before those of Python itself.
        gradient_accumulation: Micro-batches to each of its steps; the function is given more than
            one as an argument of that name.
    """

    name: str
    search_path: tuple[str, ...] = ()
    gradient_accumulation: int = 1

    @classmethod
    def of(cls, make_step: str | MakeStep) -> Factory:
        """The factory that a name or a function stands for.

        Raises:
            InvalidInput: For ``factory``: another process could not import it by that name.
        """
        name = make_step if isinstance(make_step, str) else _name_of(make_step)
        if len(name) > 500 or not _NAME.fullmatch(name):
            raise InvalidInput({"factory": f"{shown(name)} names no function; {_EXAMPLE}"})
        factory = cls(name, tuple(str(Path(folder).absolute()) for folder in sys.path))
        # A module inside a package is found only by importing the package: that comes later.
        package = factory.module.partition(".")[0]
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise InvalidInput(
                {
                    "factory": f"there is no module {package}; start from the folder that holds "
                    f"{package}.py, or put that folder into PYTHONPATH"
                }
            )
        return factory

    @property
    def module(self) -> str:
        """The module's name."""
        return self.name.partition(":")[0]

    def load(self) -> MakeStep:
        """Import the module, which runs it, and return the function of a batch size alone.

        Raises:
            InvalidInput: For ``factory``: the module has no such function, or it does not
                accumulate gradients and is asked to.
            OwnCodeFailed: If the module raised an error.
        """
        make_step = self._imported()
        if self.gradient_accumulation == 1:
            return make_step
        if not _takes(make_step, _ACCUMULATION):
            raise InvalidInput(
                {
                    "factory": f"{self.name} has no argument {_ACCUMULATION}; give it one, "
                    "1 by default, and let a step run so many micro-batches of batch_size"
                }
            )
        return partial(make_step, **{_ACCUMULATION: self.gradient_accumulation})

    def _imported(self) -> Callable[..., Step]:
        """The function itself; it takes a batch size, and perhaps more that has a default."""
        module, _, function = self.name.partition(":")
        sys.path.extend(folder for folder in self.search_path if folder not in sys.path)
        _loading.append(self.name)
        try:
            found = getattr(importlib.import_module(module), function, None)
        except EngineError:
            raise
        except (Exception, SystemExit) as error:
            raise OwnCodeFailed(f"importing {module} failed{self.told(error)}") from error
        finally:
            _loading.pop()
        if not callable(found):
            raise InvalidInput({"factory": f"{module} has no function {function}"})
        if why := cannot_be_called(found, 1):
            raise InvalidInput(
                {"factory": f"{self.name} must take a batch size and nothing else: {why}"}
            )
        make_step: Callable[..., Step] = found
        return make_step

    def told(self, error: BaseException) -> str:
        """An error of the person's code in words: what it was, and at which of their lines."""
        said = str(error).strip().splitlines()
        what = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
        return f"{self.where(error)}: {what}"

    def where(self, error: BaseException) -> str:
        """``at FILE, line N (code)`` for the last of the person's lines that an error came through.

        Empty if there is none. Theirs is what lies in the folder of the factory's module.
        """
        file = getattr(sys.modules.get(self.module), "__file__", None)
        if file is None:
            return ""
        folder = Path(file).resolve().parent
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            path = Path(frame.filename).resolve()
            if path.is_relative_to(folder) and "site-packages" not in path.parts:
                code = f" ({frame.line})" if frame.line else ""
                return f" at {path.relative_to(folder)}, line {frame.lineno}{code}"
        return ""


def refuse_while_loading() -> None:
    """Refuse to analyse a factory from within its own module's import, which would never end.

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
    except ValueError:  # it tells nobody what it takes, as some that are written in C
        return ""
    return ""


def _takes(function: Callable[..., object], argument: str) -> bool:
    """Whether a function can be given an argument by that name."""
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
                "factory": f"{shown(name or function)} cannot be imported by another process; give "
                "a function at the top level of a module, no lambda, method or nested function"
            }
        )
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else ""
        if not module:
            raise InvalidInput(
                {"factory": f"put {name} into a file, such as my_training.py, and import it"}
            )
    return f"{module}:{name}"
