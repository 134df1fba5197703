"""The modules that this process has loaded, looked through without trusting what they are.

``sys.modules`` is anybody's: it holds ``None`` (an import that is forbidden), objects in the place
of modules (Cython's ``cython.parallel`` has no ``__name__``), modules that load themselves at the
first access to an attribute, and modules that raise there. So nothing here asks an object for an
attribute: a module is known by its type, its name is the key, and its names are its own dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from types import ModuleType
from typing import Any

Namespace = MutableMapping[str, Any]
"""The names of a module, as ``vars`` gives them; what is put there is in the module."""

_NAMESPACE = vars(ModuleType)["__dict__"]
"""Reads a module's dictionary past all that its class does when an attribute is read."""


def namespace(name: str) -> Namespace:
    """The names of one module; empty if it is not loaded, or if what is there is no module."""
    return _names(sys.modules.get(name))


def namespaces(package: str = "") -> list[Namespace]:
    """The names of each module that is loaded: of a package and all in it, or of all packages."""
    loaded = list(sys.modules.items())
    if not package:
        return [_names(module) for _, module in loaded]
    inside = f"{package}."
    return [_names(module) for name, module in loaded if name.startswith(inside) or name == package]


def _names(module: object) -> Namespace:
    # isinstance would ask the object for its class.
    if not issubclass(type(module), ModuleType):
        return {}
    names: Namespace = _NAMESPACE.__get__(module) or {}
    return names
