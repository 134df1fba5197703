"""docs/architecture.md draws the layers that import-linter holds, and has a line for each room."""

from __future__ import annotations

import re
import tomllib

import pytest

from benchmarks.results.documents import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
LAYERS: dict[str, list[str]] = {
    contract["containers"][0]: contract["layers"]
    for contract in CONTRACTS
    if "containers" in contract
}


def _drawn(package: str) -> list[list[str]]:
    """The rows of a package's picture: names, and after three spaces or more what they are for."""
    (picture,) = re.findall(rf"```\n{package}\n(.*?)```", TEXT, re.DOTALL)
    return [re.split(r"\s{3,}", line.strip())[0].split() for line in picture.splitlines()]


@pytest.mark.parametrize("package", LAYERS)
def test_a_picture_shows_the_layers_that_are_held(package: str) -> None:
    held = [sorted(layer.split(" | ")) for layer in LAYERS[package]]
    assert [sorted(name.removesuffix(".py") for name in row) for row in _drawn(package)] == held


@pytest.mark.parametrize("package", LAYERS)
def test_a_picture_tells_files_from_folders(package: str) -> None:
    names = [name for row in _drawn(package) for name in row]
    places = [ROOT / package / name for name in names]
    assert [name for name, place in zip(names, places, strict=True) if not place.exists()] == []


@pytest.mark.parametrize(
    ("package", "heading"), [("engine", "Rooms of the engine"), ("analyses", "Rooms of the site")]
)
def test_each_folder_has_a_line(package: str, heading: str) -> None:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    named = set(re.findall(r"`(\w+)/`", "\n".join(rows)))
    folders = {init.parent.name for init in (ROOT / package).glob("*/__init__.py")}
    assert folders - named == {"tests"}
