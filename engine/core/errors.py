"""The engine's errors, by kind, so that each front end can report them in its own way."""

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


class EngineError(Exception):
    """A failure with a message for a person.

    Attributes:
        code: A stable word for programs (``failed``, ``invalid_input``, …).
    """

    code = "failed"

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled, whatever its class takes to be made."""
        return _made_again, (type(self), self.args, vars(self))


def _made_again(
    kind: type[EngineError], arguments: tuple[Any, ...], values: dict[str, Any]
) -> EngineError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(values)
    return error


class InvalidInput(EngineError):
    """The request is wrong; nothing was run.

    Attributes:
        fields: One message per wrong field, keyed by the field's name.
    """

    code = "invalid_input"

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)
        super().__init__("; ".join(f"{name}: {message}" for name, message in self.fields.items()))


class DoesNotFit(EngineError):
    """The workload needs more memory than the GPU has, even at the smallest batch size."""

    code = "does_not_fit"


class MeasurementFailed(EngineError):
    """A measured trial ended for a reason other than memory."""

    code = "measurement_failed"


OF_THE_EXTRA = frozenset(
    {"PIL", "huggingface_hub", "numpy", "peft", "pydantic", "rich", "torch", "transformers", "yaml"}
)
"""Packages of the extra ``engine``, by the names of imports."""


@contextmanager
def needing_the_engine() -> Iterator[None]:
    """Say what to install where something of the extra ``engine`` is missing or does not load.

    Raises:
        EngineMissing, PackageBroken: In the place of the error about it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in OF_THE_EXTRA:
            raise EngineMissing(
                "this needs the engine; run: pip install 'memorymark[engine]' "
                f"({error.name} is not installed)"
            ) from error
        _raise_if_broken(error)
        raise
    except (ImportError, RuntimeError) as error:  # which of the two depends on transformers
        _raise_if_broken(error)
        raise


def _raise_if_broken(error: BaseException) -> None:
    """Say which package does not load, where an error comes from importing one.

    Raises:
        PackageBroken: In the place of the error.
    """
    first = error
    while (before := first.__cause__ or first.__context__) is not None:
        first = before
    frames = traceback.extract_tb(first.__traceback__)
    importing = [frame.filename for frame in frames if frame.name == "<module>"]
    package = next(filter(None, map(_package, reversed(importing))), None)
    if package is None or package in _OUR_OWN:
        return
    said = str(first).strip().partition("\n")[0]
    raise PackageBroken(
        f"{_versioned(package)} does not load beside {_versioned('torch')} "
        f"({type(first).__name__}: {said}); install the versions that belong together, or remove "
        f"it if nothing needs it (pip uninstall {package})"
    ) from error


def _package(file: str) -> str | None:
    """The installed package that a file belongs to, by the name of its import."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    return None


def _versioned(package: str) -> str:
    with suppress(PackageNotFoundError):
        return f"{package} {version(package)}"
    return package


_OUR_OWN = ("engine", "memorymark")


class EngineMissing(EngineError, ImportError):
    """Only the base of MemoryMark is installed: client, recorder and callbacks."""


class PackageBroken(EngineError, ImportError):
    """An installed package fails while it is imported, as one built for another torch does."""


def report_unexpected(error: BaseException) -> None:
    """Write an unexpected error to standard error, with a short summary as the last line.

    The parent process shows that line to users; CUDA's errors end with advice for kernel
    developers instead.
    """
    traceback.print_exception(error)
    first = str(error).strip().partition("\n")[0]
    sys.stderr.write(f"{type(error).__name__}: {first}\n")


class NotPredictable(RuntimeError):
    """Memory that cannot be known without running the program where it is to run."""


def in_one_line(error: BaseException, written: Callable[[str], str] = str) -> str:
    """The kind of an error and its first line, or that it says nothing.

    Args:
        error: The error.
        written: Writes the line, such as in quotes.
    """
    lines = str(error).strip().splitlines()
    if not lines or not lines[0].strip("'\""):
        return f"{type(error).__name__}, which does not say why"
    return f"{type(error).__name__}: {written(lines[0])}"
