"""``memorymark site``: starts the web site that is installed beside the engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from ..core.errors import EngineError

_PACKAGE = Path(__file__).parents[1]
_STARTED_WITH = ("django", "environ", "honcho")
"""Modules that the site's command line imports first; Django alone may be somebody else's."""
_MISSING = (
    "the site is not installed here. It has releases of its own of PyTorch and others, so give it "
    "an environment of its own: python3 -m venv site && site/bin/pip install 'memorymark[site]'"
)
_HELP = {"-h", "--help", "help"}
_USAGE = "usage: memorymark site [--config FILE] [COMMAND ...]"


def site(arguments: Sequence[str]) -> int:
    """Become the site's own command line, in its folder.

    Args:
        arguments: Arguments that follow ``site``.

    Returns:
        The exit status, of help where the site is not installed.

    Raises:
        EngineError: What the site needs is not installed.
    """
    installed = _PACKAGE.with_name("memorymark_app")
    folder = installed if installed.is_dir() else _PACKAGE.parent  # of a checkout
    if (folder / "memorymark_site").is_dir() and all(map(find_spec, _STARTED_WITH)):
        _become(folder, arguments)
    if not _HELP & {*arguments}:
        raise EngineError(_MISSING)
    about = f"Starts the web site, or runs one of its commands; {_MISSING}"
    sys.stdout.write(f"{_USAGE}\n\n{about}\n")
    return 0


def _become(folder: Path, arguments: Sequence[str]) -> NoReturn:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    # -P: a folder named analyses where the command is given is not ours.
    os.execve(  # noqa: S606  # our own Python
        sys.executable,
        [sys.executable, "-P", "-m", "memorymark_site", *arguments],
        os.environ | {"PYTHONPATH": path},
    )
