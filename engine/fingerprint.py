"""Hashes of what predictions depend on besides their requests."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_SUFFIXES = (".py", ".toml", ".json")
_PACKAGES = ("torch", "transformers", "peft", "pillow")
STEP_PREDICTOR = "step_predictor"
"""The entry of an analysis's environment that holds :func:`step_predictor`."""
_STEP_TIMES = ("step_time.py", "kernels.py", "speed_model.py", "step_time.toml")


def fingerprint() -> str:
    """Changes with the engine's code and tables and the versions of the libraries it traces.

    Reads about 1 MB of files and loads neither torch nor transformers.
    """
    from .prediction.intervals import own_file

    digest = hashlib.sha256()
    root, own = Path(__file__).parent, own_file()
    files = [path for path in sorted(root.rglob("*")) if path.suffix in _SUFFIXES]
    files = [path for path in files if "tests" not in path.relative_to(root).parts]
    for path in [*files, *([own] if own.exists() else [])]:
        digest.update(path.name.encode() + path.read_bytes())
    for package in _PACKAGES:
        digest.update(f"{package} {_version(package)}".encode())
    return digest.hexdigest()


@cache
def step_predictor() -> str:
    """Changes with how step times are predicted from the operations of a step."""
    folder = Path(__file__).parent / "prediction"
    return hashlib.sha256(
        b"".join((folder / name).read_bytes() for name in _STEP_TIMES)
    ).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
