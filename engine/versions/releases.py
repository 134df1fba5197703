"""Releases of torch and transformers that the engine does not run with, in one line each.

Nothing here loads these packages: a release may be one that does not load.
"""

from __future__ import annotations

import platform
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.errors import EngineError
from . import software
from .software import TESTED, minor, untested, written


class ReleaseRefused(EngineError, ImportError):
    """A package is there in a release that the engine does not run with."""


def check_releases(installed: Mapping[str, str] | None = None) -> None:
    """Refuse releases that the engine does not run with.

    Args:
        installed: Versions by package; by default those of this environment.

    Raises:
        ReleaseRefused: If one is older than all that were tested.
    """
    here = software.installed() if installed is None else installed
    for package, tested in TESTED.items():
        if package in here and minor(here[package]) < tested.oldest:
            oldest = written(tested.oldest)
            raise ReleaseRefused(
                f"{package} {here[package]} is older than {oldest}, the oldest release that the "
                f"engine runs with; run: pip install '{package}>={oldest}'"
            )


@contextmanager
def naming_untested(installed: Mapping[str, str] | None = None) -> Iterator[None]:
    """Say in one line that the engine failed in a release newer than all that were tested.

    Raises:
        ReleaseRefused: In the place of an unexpected error in such a release.
    """
    try:
        yield
    except (EngineError, BrokenPipeError):
        raise
    except Exception as error:
        here = software.installed() if installed is None else installed
        newer = untested(here)
        if not newer:
            raise
        said = str(error).strip().partition("\n")[0]
        wanted = " ".join(f"'{package}<{_after(TESTED[package].newest)}'" for package in newer)
        raise ReleaseRefused(
            f"the engine failed ({type(error).__name__}: {said}), and it is not tested with "
            f"{software.format_versions({package: here[package] for package in newer})}; "
            f"update memorymark, or run: pip install {wanted}"
        ) from error


def described(version: str) -> str:
    """Versions here, a line for each part: MemoryMark, Python, torch and its build, and others.

    Args:
        version: MemoryMark's own.
    """
    here = dict(software.installed())
    lines = [f"memorymark {version}", f"Python {platform.python_version()}"]
    if here.pop("torch", None) is not None:
        lines.append(_torch_build())
    lines += [f"{package} {number}" for package, number in here.items()]
    tested = ", ".join(f"{package} {tested}" for package, tested in TESTED.items())
    return "\n".join([*lines, f"tested with {tested}"])


def _torch_build() -> str:
    """Such as ``torch 2.11.0+cu130, built for CUDA 13.0``; read from the file torch reads."""
    spec = find_spec("torch")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    build: dict[str, Any] = runpy.run_path(str(folder / "version.py"))
    for kind, name in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        if build.get(kind):
            return f"torch {build['__version__']}, built for {name} {build[kind]}"
    return f"torch {build['__version__']}, built for the CPU"


def _after(release: tuple[int, int]) -> str:
    return written((release[0], release[1] + 1))
