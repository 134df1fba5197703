"""A hash of everything a prediction depends on besides its request."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..core.process import calibration_file

_SUFFIXES = (".py", ".toml", ".json")
_PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "peft",
    "diffusers",
    "timm",
    "bitsandbytes",
    "torchao",
    "liger-kernel",
    "pillow",
)


def fingerprint() -> str:
    """Changes with the engine's code and tables and the versions of the libraries it traces.

    Reads about 1 MB of files and loads neither torch nor transformers.
    """
    from ..gpus import known  # loads more than a training job needs

    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    files = [path for path in sorted(root.rglob("*")) if path.suffix in _SUFFIXES]
    files = [path for path in files if "tests" not in path.relative_to(root).parts]
    own = [path for path in (calibration_file(), known.own_file()) if path.exists()]
    for path in [*files, *own]:
        digest.update(path.name.encode() + path.read_bytes())
    for package in _PACKAGES:
        digest.update(f"{package} {_version(package)}".encode())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
