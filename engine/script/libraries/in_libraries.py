"""Functions and methods of libraries, replaced also where the library is imported later on.

To import a library for that would take seconds, and few scripts use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ...versions.loaded_modules import Namespace, namespace
from ...versions.patches import patch_names_for_good, patched, patched_names

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
        self._replaced = ExitStack()

    def __enter__(self) -> None:
        for name in self._stand_ins:
            self._replace(name)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        self._replaced.close()

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
            self._replaced.enter_context(
                patched(
                    names[first],
                    method,
                    stand_in,
                    why="libraries load weights by ways of their own",
                )
                if method
                else self._replaced_name(names, first, stand_in)
            )

    def _replaced_name(
        self, names: Namespace, name: str, stand_in: Any
    ) -> AbstractContextManager[None]:
        own = self._originals.get(names[name], names[name])
        patch_names_for_good([(names, name, own)], why="it was imported while a stand-in was there")
        return patched_names(
            [(names, name, stand_in)], why="libraries load weights by ways of their own"
        )
