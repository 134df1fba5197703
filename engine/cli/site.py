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


def site(arguments: Sequence[str]) -> NoReturn:
    """Become the site's own command line, in its folder.

    Args:
        arguments: Arguments that follow ``site``.

    Raises:
        EngineError: What the site needs is not installed.
    """
    installed = _PACKAGE.with_name("memorymark_app")
    folder = installed if installed.is_dir() else _PACKAGE.parent  # of a checkout
    if find_spec("django") is None or not (folder / "memorymark_site").is_dir():
        raise EngineError("the site is not installed; run: pip install 'memorymark[site]'")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    # -P: a folder named analyses where the command is given is not ours.
    os.execve(  # noqa: S606  # our own Python
        sys.executable,
        [sys.executable, "-P", "-m", "memorymark_site", *arguments],
        os.environ | {"PYTHONPATH": path},
    )
