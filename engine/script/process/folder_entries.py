"""Entries of a folder as ``os.scandir`` gives them, of files that are really elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_stat = os.stat  # which may be replaced in the process that lists them


class Entry(os.PathLike[str]):
    """A file or folder in another one, as ``os.scandir`` gives them."""

    def __init__(self, path: Path, place: str) -> None:
        self.name, self.path, self._place = path.name, str(path), place

    def __fspath__(self) -> str:
        return self.path

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return _stat(self._place, follow_symlinks=follow_symlinks)

    def _is(self, kind: Callable[[int], bool], follows: bool) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follows).st_mode)
        except OSError:  # a link that leads nowhere
            return False

    def inode(self) -> int:
        return self.stat().st_ino


class Entries:
    """The entries of a folder, as ``os.scandir`` gives them."""

    def __init__(self, entries: list[Entry]) -> None:
        self._left = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self._left

    def __next__(self) -> Entry:
        return next(self._left)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._left = iter(())
