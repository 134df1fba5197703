"""Builds of the matrix, and the environment of each: what pip gives a user beside MemoryMark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from engine.core.errors import EngineError
from engine.versions import environments

TORCH = (
    "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0",
)  # fmt: skip
TRANSFORMERS = ("4.44.2", "4.51.3", "4.57.6", "5.0.0", "5.17.0", "5.23.0")
PYTHON = ("3.11", "3.12", "3.13")
NEWEST = "newest"
"""Instead of a release."""

_COMPLETE = "complete"
_BESIDE = ("accelerate",)  # what transformers' Trainer needs


@dataclass(frozen=True, order=True)
class Build:
    """The releases that a user has.

    Attributes:
        python: Such as ``3.12``.
        torch: The version, as pip takes it.
        transformers: The version, as pip takes it.
    """

    python: str
    torch: str
    transformers: str

    def __str__(self) -> str:
        return f"torch {self.torch}, transformers {self.transformers}, Python {self.python}"


def matrix(
    torch: Iterable[str], transformers: Iterable[str], python: Iterable[str]
) -> list[list[Build]]:
    """All builds of some releases; those that share an environment stand together."""
    return [
        [Build(a_python, a_torch, one) for one in transformers]
        for a_python, a_torch in product(python, torch)
    ]


def resolved(package: str, releases: Iterable[str]) -> list[str]:
    """The releases, with the newest that pip finds in place of :data:`NEWEST`.

    Raises:
        EngineError: If pip finds none.
    """
    return [_newest(package) if one == NEWEST else one for one in releases]


def _newest(package: str) -> str:
    said = _run(sys.executable, "-m", "pip", "index", "versions", package)
    found = re.match(rf"{package} \((\d[^)+]*)", said)
    if found is None:
        raise EngineError(f"pip lists no releases of {package}: {said[:200]}")
    return found[1]


def cache_folder() -> Path:
    """The folder that keeps environments from one run to the next, outside of the repository."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memorymark" / "builds"
    )


@contextmanager
def environment(folder: Path, build: Build, *, keep: bool) -> Iterator[Path]:
    """The interpreter of an environment with a build's Python and PyTorch.

    Args:
        folder: The folder of all environments.
        build: One of those that share it.
        keep: Whether to find it again, or delete it afterwards: it takes 5 GB.

    Raises:
        EngineError: If it cannot be made.
    """
    home = folder / f"python{build.python}-torch{build.torch}"
    python = home / "bin" / "python"
    try:
        if not (home / _COMPLETE).exists():
            shutil.rmtree(home, ignore_errors=True)
            _run(interpreter(build.python), "-m", "venv", os.fspath(home))
            _pip(python, f"torch=={build.torch}")
            (home / _COMPLETE).touch()
        yield python
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def install(python: Path, build: Build, wheel: Path) -> None:
    """Install a build's transformers, and MemoryMark as it is now.

    Raises:
        EngineError: If pip cannot.
    """
    kept = (f"torch=={build.torch}", f"transformers=={build.transformers}")
    _pip(python, f"{wheel}[engine]", *_BESIDE, *kept)
    _pip(python, "--force-reinstall", "--no-deps", os.fspath(wheel))  # the same version, new code


@contextmanager
def reference(folder: Path, transformers: str, wheel: Path) -> Iterator[Path]:
    """The interpreter of the environment that the others are compared with.

    It has everything as pinned but transformers, if that is to be another, and answers with the
    same wheel as they do: what is installed here may be newer by then, or another checkout.
    """
    home = folder / f"pinned-transformers{transformers}"
    try:
        yield environments.create(home, f"transformers=={transformers}", os.fspath(wheel))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def interpreter(wanted: str) -> str:
    """A Python of that release, such as ``3.12``.

    Raises:
        EngineError: If none is on the PATH.
    """
    if wanted == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise EngineError(f"python{wanted} is not on the PATH; install it, or leave it out")
    return found


def _pip(python: Path, *arguments: str) -> None:
    _run(os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         *arguments)  # fmt: skip


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        said = errors or ran.stderr.strip().splitlines() or ["without a message"]
        raise EngineError(f"{' '.join(command[1:4])} failed: {said[-1][:300]}")
    return ran.stdout
