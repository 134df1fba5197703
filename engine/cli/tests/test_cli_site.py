"""``memorymark site`` where the site is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from engine.cli import site
from engine.cli.main import FAILED, OK, main


@pytest.fixture(autouse=True, params=["django", "honcho"])
def _missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without one of the packages that the site starts with."""
    monkeypatch.setattr(
        site, "find_spec", lambda name: None if name == request.param else find_spec(name)
    )


def test_it_names_an_environment_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site"]) == FAILED
    said = capsys.readouterr().err
    assert said.startswith("error: the site is not installed here.")
    assert "python3 -m venv" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_is_there_all_the_same(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", *words]) == OK
    said = capsys.readouterr().out
    assert said.startswith("usage: memorymark site")
    assert "not installed here" in said
