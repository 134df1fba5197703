"""Functions and methods of libraries, replaced also where the library is imported later on.

To import a library for that would take seconds, and few scripts use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..versions.loaded_modules import namespace

StandIns = Mapping[str, Mapping[str, Any]]
"""Stand-ins of names, by the module that holds them; ``Class.method`` is one too."""


class Replacing(MetaPathFinder):
    """Replaces names of libraries for as long as this context lasts.

    Args:
        stand_ins: What takes their place. Names that a library does not have are left out.
        originals: What to put back, of names that held a stand-in when they were imported.
    """

    def __init__(self, stand_ins: StandIns, originals: Mapping[Any, Any]) -> None:
        self._stand_ins = stand_ins
        self._originals = originals
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        for name in self._stand_ins:
            self._replace(name)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for put_back in reversed(self._undo):
            put_back()

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The spec that others find, of a module that is changed once it is imported."""
        if name not in self._stand_ins:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module

                def load_and_replace(
                    module: ModuleType, load: Callable[[ModuleType], None] = load
                ) -> None:
                    load(module)
                    self._replace(name)

                spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]  # a loader per module
                return spec
        return None

    def _replace(self, module: str) -> None:
        names = namespace(module)
        for path, stand_in in self._stand_ins[module].items():
            first, _, method = path.partition(".")
            if first not in names:
                continue
            if method:
                self._replace_method(names[first], method, stand_in)
            else:
                self._undo.append(self._putting_back(names, first))
                names[first] = stand_in

    def _replace_method(self, kind: type, method: str, stand_in: Any) -> None:
        own = vars(kind)[method]  # as it is written there: a classmethod, not one that is bound
        self._undo.append(lambda: setattr(kind, method, own))
        setattr(kind, method, stand_in)

    def _putting_back(self, names: Any, name: str) -> Callable[[], None]:
        own = self._originals.get(names[name], names[name])

        def put_back() -> None:
            names[name] = own

        return put_back
