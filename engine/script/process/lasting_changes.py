"""Sees that a script is about to change what outlasts it: files that were there, other programs.

What it writes by ``open`` goes elsewhere (:mod:`engine.script.process.scratch`), and what saves
checkpoints does nothing. A script that is followed past its training may do more: delete old
checkpoints, write predictions by a library of its own, start a program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...versions.patches import patch_for_good
from ..on_import import when_imported

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
_REMOVES = ("os.remove", "os.rmdir", "os.rename", "os.truncate", "shutil.rmtree", "shutil.move")
_WRITES = os.O_WRONLY | os.O_RDWR
_WRITERS = {
    "h5py": ("File",),
    "cv2": ("imwrite", "VideoWriter"),
    "pyarrow.parquet": ("write_table", "ParquetWriter"),
    "torchaudio": ("save",),
    "soundfile": ("write",),
}
"""Functions that write files without ``open``, by module."""


def before_lasting_changes(stop: Callable[[str], object]) -> None:
    """Call a function before anything is changed for good; in a fork, of which nothing is undone.

    Args:
        stop: Receives what the script is about to do, in a clause; it must end the process.
    """
    since = time.time()

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event in _STARTS:
            stop("it starts another program")
        elif event == "sqlite3.connect":
            stop("it opens a database")
        elif event in _REMOVES and _was_there(args[0], since):
            stop("it removes or renames a file that was there before")
        elif event == "open" and _writes(*args[1:]) and _was_there(args[0], since):
            stop("it writes to a file that was there before")

    sys.addaudithook(look)
    when_imported({module: partial(_end_before, module, stop) for module in _WRITERS})


def _writes(mode: str | None, flags: int) -> bool:
    """Whether ``os.open`` opens a file to write; ``open`` itself is taken elsewhere."""
    return mode is None and bool(flags & _WRITES)


def _was_there(path: Any, since: float) -> bool:
    """Whether a file is older than this; names within an open folder are checked with that."""
    if not isinstance(path, str | bytes | os.PathLike):
        return True
    try:
        return os.lstat(path).st_ctime < since
    except OSError:  # there is none
        return False


def _end_before(module: str, stop: Callable[[str], object]) -> None:
    for name in _WRITERS[module]:

        def stopped(*_: Any, named: str = f"{module}.{name}", **__: Any) -> None:
            stop(f"it writes files by {named}")

        if hasattr(sys.modules[module], name):
            patch_for_good(
                sys.modules[module],
                name,
                stopped,
                why="they write files without open, which is where writing is noticed",
            )
