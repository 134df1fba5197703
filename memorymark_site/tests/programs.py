"""Programs for a fake checkout: a real honcho, and a Python replaced by a shell script."""

from __future__ import annotations

import sys
from pathlib import Path


def make_programs(checkout: Path, python: str) -> Path:
    """Create the folder of the environment's programs; returns it.

    Args:
        checkout: Folder to create the environment in.
        python: What its Python does instead, as a shell script.
    """
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "honcho").symlink_to(Path(sys.executable).parent / "honcho")
    (programs / "python").write_text(f"#!/bin/sh\n{python}\n")
    (programs / "python").chmod(0o755)
    return programs
