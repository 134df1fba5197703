"""Environments with other versions of what is traced."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.versions import software
from engine.versions.environments import make, offered, remove


def test_versions_are_read_in_the_order_of_the_packages() -> None:
    pins = software.parse(" torch==2.6.0+cpu, transformers=4.51.3 ,")
    assert pins == {"transformers": "4.51.3", "torch": "2.6.0+cpu"}
    assert software.as_text(pins) == "transformers=4.51.3,torch=2.6.0+cpu"
    assert software.format_versions(pins) == "transformers 4.51.3, torch 2.6.0+cpu"
    assert software.parse("") == {}


@pytest.mark.parametrize("text", ["4.51.3", "numpy=2.0", "torch>=2", "torch=", "torch=-r/etc"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"transformers=4\.51\.3"):
        software.parse(text)


def test_a_build_is_the_version_that_it_is_of() -> None:
    available = {"torch": "2.13.0+cpu", "transformers": "5.23.0"}
    assert software.is_offered({"torch": "2.13.0"}, available)
    assert not software.is_offered({"torch": "2.13.0+cu126"}, available)
    assert not software.is_offered({"peft": "0.14.0"}, available)
    wanted = {"torch": "2.13.0", "transformers": "4.51.3"}
    assert software.unlike(wanted, available) == {"transformers": "4.51.3"}


def test_a_folder_offers_its_complete_environments(tmp_path: Path) -> None:
    assert offered(tmp_path / "missing") == []
    (tmp_path / "transformers=4.44.2").mkdir()  # not made to the end
    home = tmp_path / "transformers=4.51.3"
    home.mkdir()
    (home / "versions.json").write_text(json.dumps({"transformers": "4.51.3"}))
    (found,) = offered(tmp_path)
    assert found.name == "transformers=4.51.3"
    assert found.python == home / "bin" / "python"
    assert found.versions == {"transformers": "4.51.3"}
    assert remove(tmp_path, found.name)
    assert not home.exists()
    assert not remove(tmp_path, found.name)


@pytest.mark.slow
def test_an_environment_is_made_with_pip(tmp_path: Path) -> None:
    here = software.installed()
    made = make(tmp_path, {"transformers": here["transformers"]})
    assert made.versions == here
    assert offered(tmp_path) == [made]
    # It finds the engine from any folder, after its own packages.
    command = [os.fspath(made.python), "-m", "engine", "--version"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_nothing_is_left_of_an_environment_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(EngineError, match="No matching distribution found"):
        make(tmp_path, {"transformers": "4.0.999"})
    assert list(tmp_path.iterdir()) == []
