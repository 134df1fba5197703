"""The list of private names is complete, and right for the releases that are installed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.versions import private_names
from engine.versions.private_names import NAMES, Release, misplaced

ENGINE = Path(private_names.__file__).parent
PACKAGES = {"accelerate", "bitsandbytes", "diffusers", "peft", "torch", "transformers"}


def _imported(file: Path) -> set[str]:
    """The private names that a file imports, by their paths."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {
        path
        for path in found
        if path.partition(".")[0] in PACKAGES and any(map(_is_private, path.split(".")))
    }


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _files() -> list[Path]:
    return [file for file in ENGINE.rglob("*.py") if "tests" not in file.parts]


def test_every_private_import_is_listed() -> None:
    listed = {path.partition(":")[0] for path in NAMES}
    missing = {
        path
        for file in _files()
        for path in _imported(file)
        if not any(one == path or one.startswith(f"{path}.") for one in listed)
    }
    assert not missing


def test_every_private_attribute_is_listed_or_the_engines_own() -> None:
    own, used = {"_exit", "_getframe", "_current_frames"}, set[str]()
    for file in _files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Name):
                own.add(node.id)
            elif isinstance(node, ast.Attribute):
                (own if isinstance(node.ctx, ast.Store) else used).add(node.attr)
    listed = {part for path in NAMES for part in path.replace(":", ".").split(".")}
    others = {name for name in used - own - listed if _is_private(name)}
    assert others <= {"_supports_gradient_checkpointing"}  # of diffusers' models, all of them


@pytest.mark.torch
def test_every_name_is_where_it_is_expected_here() -> None:
    assert list(misplaced()) == []


@pytest.mark.torch
def test_a_name_that_moved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {"torch.nn._gone": Release(), "torch.nn.Linear": Release(until="2.0")}
    monkeypatch.setattr(private_names, "NAMES", moved)
    assert list(misplaced({"torch": "2.13.0"})) == [
        "torch.nn._gone is missing from torch 2.13.0",
        "torch.nn.Linear is not expected, and yet there, in torch 2.13.0",
    ]
