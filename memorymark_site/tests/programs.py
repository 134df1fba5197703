"""The programs of a checkout that tests make up: a real honcho, and a Python that only talks."""

from __future__ import annotations

import sys
from pathlib import Path


def make_programs(checkout: Path, python: str) -> Path:
    """Make the folder of the environment's programs; returns it.

    Args:
        checkout: Where the environment is to be.
        python: What its Python does instead, as a shell script.
    """
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "honcho").symlink_to(Path(sys.executable).parent / "honcho")
    (programs / "python").write_text(f"#!/bin/sh\n{python}\n")
    (programs / "python").chmod(0o755)
    return programs
