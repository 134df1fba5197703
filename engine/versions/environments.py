"""Python environments with other versions of what is traced, made with pip.

An environment shares the packages of the Python that makes it and installs before them only what
differs, so it takes seconds and some hundred megabytes; another torch takes gigabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import EngineError
from ..core.process import state_folder
from . import software

_VERSIONS_FILE = "versions.json"
_ENGINE = Path(__file__).resolve().parents[1]
_READ_VERSIONS = """
import json, sys, torch, transformers
from importlib.metadata import PackageNotFoundError, version
found = {}
for package in sys.argv[1:]:
    try:
        found[package] = version(package)
    except PackageNotFoundError:
        continue
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Environment:
    """An environment that the engine can run in.

    Attributes:
        name: Name of its folder: the requested versions.
        python: Its interpreter.
        versions: Versions of the :data:`engine.versions.software.PACKAGES` that it has.
    """

    name: str
    python: Path
    versions: Mapping[str, str]


def make(folder: Path, wanted: Mapping[str, str]) -> Environment:
    """Make an environment with these versions in a folder of its own below ``folder``.

    Raises:
        EngineError: If pip finds no such version, or it cannot be loaded.
    """
    home = folder / software.as_text(wanted)
    python = create(home, *(f"{package}=={number}" for package, number in wanted.items()))
    try:
        # Loaded, since versions that pip takes together may not run together.
        found = json.loads(_run(os.fspath(python), "-c", _READ_VERSIONS, *software.PACKAGES))
    except EngineError:
        shutil.rmtree(home, ignore_errors=True)
        raise
    (home / _VERSIONS_FILE).write_text(json.dumps(found))
    return Environment(home.name, python, found)


def create(home: Path, *installed: str) -> Path:
    """Create an environment in a folder, where packages from pip come before the shared ones.

    Args:
        home: The folder; what is in it is deleted.
        installed: Arguments of ``pip install``.

    Returns:
        Its interpreter.

    Raises:
        EngineError: If pip cannot install that; the folder is gone then.
    """
    python = home / "bin" / "python"
    try:
        venv.create(home, clear=True, symlinks=True)
        _share_packages(python)
        _run(sys.executable, "-m", "pip", "--python", os.fspath(python), "install", "--quiet",
             "--disable-pip-version-check", *installed)  # fmt: skip
    except EngineError:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return python


def offered(folder: Path) -> list[Environment]:
    """The complete environments in a folder, by name."""
    return [
        Environment(file.parent.name, file.parent / "bin" / "python", json.loads(file.read_text()))
        for file in sorted(folder.glob(f"*/{_VERSIONS_FILE}"))
    ]


def of_user() -> Path:
    """The folder of this user's environments that share the packages of this Python."""
    shared = hashlib.sha256(f"{sys.prefix} {sys.version}".encode()).hexdigest()
    return state_folder() / "environments" / shared[:12]


def remove(folder: Path, name: str) -> bool:
    """Delete an environment; returns whether there was one."""
    found = [environment for environment in offered(folder) if environment.name == name]
    for environment in found:
        shutil.rmtree(environment.python.parent.parent)
    return bool(found)


def _share_packages(python: Path) -> None:
    """Let an environment find the packages of this one, and the engine, after its own."""
    shared = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    shared[os.fspath(_ENGINE.parent)] = None  # a checkout is in neither
    own = _run(
        os.fspath(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).strip()
    Path(own, "shared.pth").write_text("\n".join(shared) + "\n")


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = ran.stderr.strip().rpartition("\n")[2]
        raise EngineError(f"the environment cannot be made: {last[:500]}")
    return ran.stdout
