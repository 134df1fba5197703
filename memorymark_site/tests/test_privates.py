"""Private names of other packages may change in any release: each is looked up here.

That fails where the name is used, before anybody meets it. What a name does is held by the tests
of the code that uses it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
OURS = ("engine", "analyses", "memorymark_site", "benchmarks", "drills", "demo", "e2e")
MODULES = [
    path
    for package in OURS[:3]
    for path in (ROOT / package).rglob("*.py")
    if not {"tests", "migrations"} & {*path.relative_to(ROOT).parts}
]


@pytest.mark.torch
def test_every_private_name_of_another_package_exists() -> None:
    used = {name for path in MODULES for name in _privates(ast.parse(path.read_text()))}

    assert any(name.startswith("torch._C.") for name in used)
    assert sorted(name for name in used if not _exists(name)) == []


def _privates(module: ast.Module) -> Iterator[str]:
    """Dotted names with a private part that begin with what a module imports from elsewhere."""
    names: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or imported] = imported
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    chains = [*names.values()]
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and (chain := _chain(node, names)):
            chains.append(chain)
    for chain in chains:
        first, *parts = chain.split(".")
        foreign = first not in OURS and first not in sys.stdlib_module_names
        if foreign and any(part.startswith("_") and not part.endswith("__") for part in parts):
            yield chain


def _chain(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _chain(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""


def _exists(name: str) -> bool:
    first, *parts = name.split(".")
    found: object = import_module(first)
    path = first
    for part in parts:
        path += f".{part}"
        if not hasattr(found, part):
            try:
                import_module(path)
            except ImportError:
                return False
        found = getattr(found, part)
    return True
