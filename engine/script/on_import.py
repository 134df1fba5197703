"""Changes modules of other packages as soon as a script has imported them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from ..versions.loaded_modules import namespace

Change = Callable[[], None]


def when_imported(changes: Mapping[str, Change]) -> None:
    """Call a function for each module: now if it has been imported, else when it is.

    Nothing of it can be undone; for a process that runs a script.
    """
    waiting = {name: change for name, change in changes.items() if not namespace(name)}
    for name in changes.keys() - waiting.keys():
        changes[name]()
    sys.meta_path.insert(0, _Finder(waiting))


class _Finder(MetaPathFinder):
    """Finds the modules that are waited for, with a loader that calls the change.

    A module may be looked for long before it is imported, as libraries do to learn what is there.
    """

    def __init__(self, waiting: dict[str, Change]) -> None:
        self._waiting = waiting
        self._asks_others = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._asks_others or fullname not in self._waiting:
            return None
        self._asks_others = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asks_others = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_change(module: ModuleType) -> None:
                run(module)
                self._waiting.pop(fullname, lambda: None)()

            spec.loader.exec_module = run_and_change  # type: ignore[method-assign]  # a loader per module
        return spec
