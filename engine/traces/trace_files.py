"""Traces kept on disk, so that previews, analyses and plans trace a workload once.

There is one file for each workload, named after a hash of it and of all that its traces depend on.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import pickle
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..core.process import state_folder
from ..interface.workload import Workload
from .fingerprint import fingerprint

FOLDER_VARIABLE = "ENGINE_TRACES"
"""Environment variable with the folder of the traces; empty to keep none on disk."""

MAX_BYTES = 256 * 2**20
"""Limit of all files: the least recently used are removed. A workload takes 20 to 400 kB."""

MAX_WAIT_SECONDS = 60.0
"""Time to wait for another process to trace the same workload, before it is traced twice."""

_SUFFIX = ".trace"
_LOCK_SUFFIX = ".lock"
_LOOK_SECONDS = 0.02
_PACKAGE = __name__.removesuffix("traces.trace_files")  # ``memorymark.`` where installed


@dataclass(frozen=True)
class TraceFiles:
    """The traces in a folder.

    What cannot be read, such as a file of a version that wrote otherwise, is traced again. Files
    are written as a whole or not at all, so processes may share the folder.

    Attributes:
        folder: The folder, which need not exist.
        most_bytes: Limit of all files together.
        code: Names what the traces depend on besides the workload; by default the fingerprint of
            all of the engine.
    """

    folder: Path
    most_bytes: int = MAX_BYTES
    code: str = ""

    def load(self, workload: Workload, warn: Callable[[str], object]) -> Any:
        """The traces saved for a workload; ``None`` if there are none, or they cannot be read.

        Args:
            workload: Its traces.
            warn: Receives a sentence where a file cannot be read.
        """
        path = self._path(workload)
        try:
            content = path.read_bytes()
            os.utime(path)
            return _Reader(io.BytesIO(zlib.decompress(content))).load()
        except FileNotFoundError:
            return None
        except Exception as error:  # pickle raises nearly anything for a damaged file
            warn(f"{path} is not usable and will be written again: {type(error).__name__}: {error}")
            return None

    def save(self, workload: Workload, traces: object, warn: Callable[[str], object]) -> None:
        """Keep the traces of a workload.

        Args:
            workload: Its traces.
            traces: Objects of the engine's own classes.
            warn: Receives a sentence where they cannot be kept.
        """
        content = zlib.compress(pickle.dumps(traces, protocol=5), level=1)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(content)
            Path(file.name).replace(self._path(workload))
            self._make_room()
        except OSError as error:
            warn(f"traces are not kept in {self.folder}: {error}")

    @contextmanager
    def held(self, workload: Workload, purpose: str) -> Iterator[bool]:
        """Keep other processes from the same with this workload, for as long as the context lasts.

        Yields whether it waited for another one, whose traces may be saved now. A process that ends
        holds nobody back, whatever ended it. Where nothing can be written, nobody waits.

        Args:
            workload: The workload.
            purpose: Work that one process at a time does with it.
        """
        waited = False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            suffix = f".{purpose.replace(' ', '-')}{_LOCK_SUFFIX}"
            file = self._path(workload).with_suffix(suffix).open("ab")
        except OSError:  # which save() tells of
            yield waited
            return
        with file:
            end = time.monotonic() + MAX_WAIT_SECONDS
            while not _locked(file.fileno()) and time.monotonic() < end:
                waited = True
                time.sleep(_LOOK_SECONDS)
            try:
                yield waited
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # also for a fork that has the file open

    def _path(self, workload: Workload) -> Path:
        asked = json.dumps(workload.to_dict(), sort_keys=True)
        digest = hashlib.sha256(f"{self.code or _fingerprint()} {asked}".encode()).hexdigest()
        return self.folder / f"{digest[:40]}{_SUFFIX}"

    def _make_room(self) -> None:
        """Remove the least recently used files, also those that were never finished."""
        files = [(path.stat(), path) for path in self.folder.iterdir()]
        left = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda one: one[0].st_mtime):
            if left <= self.most_bytes:
                return
            with suppress(FileNotFoundError):  # another process was first
                path.unlink()
            left -= stat.st_size


def _locked(descriptor: int) -> bool:
    """Lock a file; false if another process has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def trace_files() -> TraceFiles | None:
    """Trace files of this machine; ``None`` if the environment says that none are kept."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder == "":
        return None
    return TraceFiles(Path(folder) if folder else state_folder() / "traces")


_fingerprint = cache(fingerprint)


class _Reader(pickle.Unpickler):
    """Reads the engine's own classes and PyTorch's number formats, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _FORMATS:
            return super().find_class(module, name)
        if module.startswith(_PACKAGE):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__.startswith(_PACKAGE):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is none of ours")


_FORMATS = ("float32", "float16", "bfloat16", "float64")
