"""Files of a script that runs in a fork: those that were there stay, and it finds those it wrote.

What it writes goes into a folder of ours and is read there again; what it removes or renames is
only hidden from it. Functions of Python that look for files know of both, so that a script may
prepare its data, list them and read them, while others like it do the same beside it. Caches and
temporary files stay where they are.
"""

from __future__ import annotations

import builtins
import errno
import glob
import io
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...versions.patches import patch_for_good
from ..on_import import when_imported
from .folder_entries import Entries, Entry
from .fork import folder_prefix

_CACHES = ("HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OF_ONE = ("stat", "lstat", "access", "chdir", "listxattr", "getxattr")
"""Functions of ``os`` whose first argument is a file or folder that is there."""

_CHANGE = ("chmod", "chown", "utime", "setxattr", "removexattr")
"""Those that change what is known of it beside what it holds."""

_OPEN_BY_NAME = {"tarfile": "bltn_open", "bz2": "_builtin_open"}
"""Names by which modules have taken ``open`` for themselves."""

_READERS = {
    "cv2": ("imread", "VideoCapture"),
    "soundfile": ("read", "info"),
    "torchaudio": ("load", "info"),
    "pyarrow": ("memory_map",),
    "torch": ("from_file",),
}
_WRITERS = {
    "cv2": ("imwrite",),
    "soundfile": ("write",),
    "torchaudio": ("save",),
    "sqlite3": ("connect",),
}
"""Functions of libraries, in C, that open the file that is their first argument."""


def temporary_folder() -> str:
    """Folder in which scripts may write: what is there is not expected to stay."""
    return tempfile.gettempdir()


class Scratch:
    """Files that a script has written, removed and renamed.

    From its making on, for as long as the process lives, the script finds its files as it left
    them, and all others are left alone. :meth:`remove` removes what has been made.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix=folder_prefix(os.getpid()))
        self._stands_for: dict[str, str] = {}
        self._gone: set[str] = set()
        self._links: set[str] = set()
        self._count = 0
        self._aside = threading.local()  # it looks a path up, and follows links on the way
        caches = (os.environ.get(name) for name in _CACHES)
        home = str(Path.home() / ".cache")
        apart = (temporary_folder(), self._folder, "/dev", "/proc", "/sys", home, *caches)
        self._apart = tuple(os.path.realpath(folder) for folder in apart if folder)
        self._work = os.path.realpath(".")
        self._open, self._open_below, self._stat = builtins.open, os.open, os.lstat
        self._mkdir, self._rmdir, self._rmtree = os.mkdir, os.rmdir, shutil.rmtree
        self._replace, self._unlink, self._symlink = os.replace, os.unlink, os.symlink
        self._listdir, self._scandir = os.listdir, os.scandir
        for owner, name, stand_in in (
            (builtins, "open", self._opened),
            (io, "open", self._opened),
            (os, "open", self._opened_below),
            (os, "mkdir", self._folder_made),
            (os, "symlink", self._linked),
            (os, "rmdir", self._folder_removed),
            (os, "remove", self._removed),
            (os, "unlink", self._removed),
            (shutil, "rmtree", self._tree_removed),
            (os, "replace", self._renamed),
            (os, "rename", self._renamed),
            (os, "listdir", self._names),
            (os, "scandir", self._entries),
            *((os, name, self._of_one(getattr(os, name))) for name in _OF_ONE if hasattr(os, name)),
            *(
                (os, name, self._changing(getattr(os, name)))
                for name in _CHANGE
                if hasattr(os, name)
            ),
            (os, "truncate", partial(_with_file, os.truncate, self._to_write)),
        ):
            patch_for_good(
                owner, name, stand_in, why="files of a script are its own, and all others stay"
            )
        for module, name in _OPEN_BY_NAME.items():
            if module in sys.modules:
                patch_for_good(
                    sys.modules[module], name, self._opened, why="it took open when it was imported"
                )
        patterns: Any = getattr(glob, "_StringGlobber", None)
        if getattr(patterns, "scandir", None) is self._scandir:
            patch_for_good(
                patterns,
                "scandir",
                staticmethod(self._entries),
                why="patterns of Python 3.13 and newer have taken it from os already",
            )
        when_imported({name: partial(self._follow, name) for name in {**_READERS, **_WRITERS}})

    def remove(self) -> None:
        """Remove all that the script has made."""
        self._rmtree(self._folder, ignore_errors=True)

    def path_to_save(self, file: Any) -> Any:
        """A file of ours for another one to write, also where scripts may write themselves."""
        return self._to_write(file, keeps=False, also_apart=True)

    def _follow(self, module: str) -> None:
        """Let the functions of a library open the files that stand for others."""
        for names, found in ((_READERS, self._found), (_WRITERS, self._to_write)):
            for name in names.get(module, ()):
                function = getattr(sys.modules[module], name, None)
                if function is not None:
                    patch_for_good(
                        sys.modules[module],
                        name,
                        partial(_with_file, function, found),
                        why="it opens files without Python's functions",
                    )

    def _opened(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        writes = bool(set(mode) & set("wax+"))
        if writes and not isinstance(file, int):
            file = self._to_write(file, exclusive="x" in mode, keeps="w" not in mode)
        elif not writes:
            file = self._found(file)
        opened: IO[Any] = self._open(file, mode, *args, **kwargs)
        return opened

    def _opened_below(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        """``os.open``, which writes to a file where its flags say so."""
        if not _is_elsewhere(path, kwargs):
            creates = bool(flags & os.O_CREAT)
            if flags & _WRITES and (creates or not self._is_folder(self._target(path))):
                exclusive, keeps = bool(flags & os.O_EXCL), not flags & os.O_TRUNC
                path = self._to_write(path, exclusive=creates and exclusive, keeps=keeps)
            else:
                path = self._found(path)
        return self._open_below(path, flags, *args, **kwargs)

    def _to_write(
        self, file: Any, *, exclusive: bool = False, keeps: bool = True, also_apart: bool = False
    ) -> Any:
        """The file to write for another one: ours, with what that holds by now."""
        if str(file) == ":memory:":  # of a database
            return file
        path = self._target(file)
        place = self._place(path)
        if place is not None and (self._is_ours(place) or self._is_ours(path)):
            return place
        if self._is_apart(path) and not also_apart:
            self._gone.discard(path)  # it is there again
            return file
        is_there = place is not None and self._exists(place)
        if place is not None and ((exclusive and is_there) or self._is_folder(path)):
            return place  # the system refuses it
        own = self._new_in(path, file)
        if keeps and place is not None and is_there:
            with self._open(place, "rb") as old, self._open(own, "wb") as new:
                shutil.copyfileobj(old, new)
        self._stands_for[path] = own
        return own

    def _new_in(self, path: str, file: Any) -> str:
        """A place of ours for what is made in a folder, which has to be there."""
        if not self._is_folder(str(Path(path).parent)):
            raise _no_file(file)
        self._count += 1
        return f"{self._folder}/{self._count}-{Path(path).name}"

    def _folder_made(self, path: Any, *args: Any, **kwargs: Any) -> None:
        name = self._name(path)
        if _is_elsewhere(path, kwargs) or self._is_apart(name):
            self._mkdir(path, *args, **kwargs)
            return
        place = self._place(name)
        if place is None or not (self._is_ours(place) or self._exists(place)):
            place = self._new_in(name, path)
            self._mkdir(place, *args, **kwargs)
            self._stands_for[name] = place
        else:
            self._mkdir(place, *args, **kwargs)  # which fails where it is there

    def _linked(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        name = self._name(target)
        if _is_elsewhere(target, kwargs) or self._is_apart(name):
            self._symlink(source, target, *args, **kwargs)
            return
        if self._exists(self._place(name)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        leads_to = self._target(Path(name).parent / os.fsdecode(source))
        self._stands_for[name] = self._place(leads_to) or leads_to
        self._links.add(name)

    def _folder_removed(self, path: Any, **kwargs: Any) -> None:
        name = self._name(path)
        if _is_elsewhere(path, kwargs) or self._is_apart(name):
            self._rmdir(path, **kwargs)
            return
        if self._names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._hide(name)

    def _removed(self, path: Any, **kwargs: Any) -> None:
        name = self._name(path)
        if _is_elsewhere(path, kwargs) or self._is_apart(name):
            self._unlink(path, **kwargs)
            return
        if self._is_folder(name) and name not in self._links:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not self._exists(self._place(name)):
            raise _no_file(path)
        self._hide(name)

    def _tree_removed(self, path: Any, *args: Any, **kwargs: Any) -> None:
        name = self._name(path)
        if self._is_apart(name) or not self._is_folder(name):
            self._rmtree(path, *args, **kwargs)  # it may be told to ignore that nothing is there
        else:
            self._hide(name)

    def _hide(self, name: str) -> None:
        """Let a file or folder be gone, with all that is in it."""
        inside = [name]
        if self._is_folder(name):  # there may be many files
            inside += [one for one in (*self._stands_for, *self._gone) if _is_below(one, name)]
        for one in inside:
            self._stands_for.pop(one, None)
            self._gone.discard(one)
        self._gone.add(name)
        self._links.discard(name)

    def _renamed(self, source: Any, target: Any, **kwargs: Any) -> None:
        old, new = self._name(source), self._name(target)
        if kwargs or (self._is_apart(old) and self._is_apart(new)):
            self._replace(source, target, **kwargs)
            return
        place = self._place(old)
        if place is None or not self._exists(place):
            raise _no_file(source)
        own = self._new_in(new, target)
        if self._is_apart(new):
            shutil.copytree(source, target) if self._is_folder(old) else shutil.copyfile(
                source, target
            )
        elif self._is_apart(old):
            is_temporary = _is_in(old, os.path.realpath(temporary_folder()))
            if is_temporary:  # it would not stay there
                self._replace(place, own)
            elif self._is_folder(old):
                shutil.copytree(place, own)
            else:
                shutil.copyfile(place, own)
            self._hide(new)
            self._stands_for[new] = own
            if is_temporary:
                return
        else:
            inside = {one: at for one, at in self._stands_for.items() if _is_below(one, old)}
            hidden = {one for one in self._gone if _is_below(one, old)}
            self._hide(new)
            self._stands_for[new] = place
            self._stands_for |= {new + one[len(old) :]: at for one, at in inside.items()}
            self._gone |= {new + one[len(old) :] for one in hidden}
        self._hide(old)

    def _names(self, path: Any = ".") -> list[Any]:
        if isinstance(path, bytes) or self._holds_the_same(path):
            return self._listdir(path)
        return list(self._inside(path))

    def _entries(self, path: Any = ".") -> Any:
        if isinstance(path, bytes) or self._holds_the_same(path):
            return self._scandir(path)
        above = Path("." if path is None else path)
        return Entries([Entry(above / name, at) for name, at in self._inside(path).items()])

    def _holds_the_same(self, folder: Any) -> bool:
        """Whether a folder is where it was, and nothing was written into it or removed."""
        if self._is_as_it_was(folder):
            return True
        path = self._target("." if folder is None else folder)
        changed = {os.path.dirname(one) for one in (*self._stands_for, *self._gone)}  # noqa: PTH120  # there may be many
        return self._place(path) == path and path not in changed

    def _inside(self, folder: Any) -> dict[str, str]:
        """The names in a folder, and where each really is."""
        path = self._target("." if folder is None else folder)
        place = self._found(path)
        found = {name: f"{place}{os.sep}{name}" for name in self._listdir(place)}
        left = {name: at for name, at in found.items() if f"{path}{os.sep}{name}" not in self._gone}
        ours = ((Path(one), at) for one, at in self._stands_for.items())
        return left | {one.name: at for one, at in ours if str(one.parent) == path}

    def _of_one(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of ``os``, for the file that its path stands for."""
        follows = function is not os.lstat

        def called(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_elsewhere(path, kwargs):
                path = self._found(path, follows and kwargs.get("follow_symlinks", True))
            return function(path, *args, **kwargs)

        return called

    def _changing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of ``os`` that changes a file: those that were there stay as they are."""

        def called(path: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_elsewhere(path, kwargs):
                return function(path, *args, **kwargs)
            place = self._found(path)
            name = self._target(path)
            if self._is_ours(self._target(place)) or self._is_apart(name):
                return function(place, *args, **kwargs)
            if not self._exists(self._place(name)):
                raise _no_file(path)
            return None

        return called

    def _is_as_it_was(self, path: Any) -> bool:
        """Whether nothing has been changed that a path may name."""
        untouched = not (self._stands_for or self._gone)
        return untouched or isinstance(path, int) or getattr(self._aside, "now", False)

    def _found(self, file: Any, follows: bool = True) -> Any:
        """The file that is found by a path: one of ours, or what is really there."""
        if self._is_as_it_was(file):
            return file
        path = self._target(file) if follows else self._name(file)
        for one in (path, self._name(file)):  # a link may be gone, and what it leads to
            place = self._place(one)
            if place is None:
                raise _no_file(file)
            if place != one:
                return place
        return file

    def _place(self, path: str) -> str | None:
        """Where a file or folder really is, or would be; ``None`` where it was removed."""
        for above in (path, *map(str, Path(path).parents)):
            if above in self._stands_for:
                return self._stands_for[above] + path[len(above) :]
            if above in self._gone:
                return None
        return path

    def _exists(self, place: str | None) -> bool:
        return place is not None and self._mode(place) is not None

    def _is_folder(self, path: str) -> bool:
        """Whether a folder is found by a path."""
        place = self._place(path)
        return place is not None and stat.S_ISDIR(self._mode(place) or 0)

    def _mode(self, place: str) -> int | None:
        try:
            return self._stat(place).st_mode
        except OSError:
            return None

    def _is_ours(self, place: str) -> bool:
        return place.startswith(self._folder + os.sep)

    def _is_apart(self, path: str) -> bool:
        """Whether a file is a temporary one, or of a cache.

        Those in the folder that the script is started in are not, though that may be a temporary
        one itself.
        """
        depth = max((len(one) for one in self._apart if _is_in(path, one)), default=-1)
        return depth >= (len(self._work) if _is_in(path, self._work) else 0)

    def _target(self, path: Any) -> str:
        """The path of what another one leads to, whether that is there or not."""
        self._aside.now = True
        try:
            return os.path.realpath(os.fsdecode(path))
        finally:
            self._aside.now = False

    def _name(self, path: Any) -> str:
        """A path by one name; a link at its end is not followed."""
        if isinstance(path, int):
            return ""
        given = Path(os.fsdecode(path))
        if given.name in ("", ".."):
            return self._target(given)
        return str(Path(self._target(given.parent)) / given.name)


def _with_file(
    function: Callable[..., Any], found: Callable[[Any], Any], /, *args: Any, **kwargs: Any
) -> Any:
    """The result of a function for the file that stands for its first argument."""
    if args and isinstance(args[0], str | os.PathLike):
        args = found(args[0]), *args[1:]
    return function(*args, **kwargs)


def _no_file(path: Any) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or _is_below(path, folder)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


def _is_elsewhere(path: Any, given: dict[str, Any]) -> bool:
    """Whether a path is none by itself: an open file, or below an open folder."""
    return isinstance(path, int) or given.get("dir_fd") is not None
