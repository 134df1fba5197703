"""Releases outside of the tested range: refused in one line, or named in the answer."""

from __future__ import annotations

import pytest

from engine import __version__
from engine.cli.main import main
from engine.core.errors import EngineError
from engine.versions import software
from engine.versions.releases import ReleaseRefused, check_releases, naming_untested


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        ({"torch": "2.5.1+cu124"}, "torch 2.5.1+cu124 is older than 2.6"),
        ({"torch": "2.6.0", "transformers": "4.43.4"}, "transformers 4.43.4 is older than 4.44"),
    ],
)
def test_an_older_release_is_refused_with_what_to_install(
    installed: dict[str, str], says: str
) -> None:
    with pytest.raises(ReleaseRefused, match=r"pip install '\w+>=") as refused:
        check_releases(installed)
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", ["2.6.0", "2.10.0", "2.14.1+cu130", "2.15.0a0+git1", "3.0"])
def test_others_run(number: str) -> None:
    check_releases({"torch": number, "transformers": "4.44.0"})


def test_a_newer_release_is_named_in_the_answer() -> None:
    (said,) = software.caveat("", {"torch": "2.16.0", "transformers": "5.23.0"})
    assert said.startswith("torch 2.16.0 is newer than 2.15")
    assert software.caveat("", {"torch": "2.15.1"}) == []


def test_an_error_in_a_newer_release_is_one_line() -> None:
    newer = {"torch": "2.16.0", "transformers": "5.1.0"}
    with pytest.raises(EngineError, match=r"'torch<2\.16'") as failed, naming_untested(newer):
        raise AttributeError("module 'torch' has no attribute '_C'\nand more")
    assert "and more" not in str(failed.value)


def test_an_error_in_a_tested_release_stays_what_it_is() -> None:
    with pytest.raises(AttributeError), naming_untested({"torch": "2.13.0"}):
        raise AttributeError


def test_the_command_line_refuses_an_older_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(software, "installed", lambda: {"torch": "2.5.1"})
    assert main(["predict", "bert", "--gpu", "a10", "--batch-size", "2"]) == 1
    assert capsys.readouterr().err.startswith("error: torch 2.5.1 is older than 2.6")
    assert main(["devices"]) == 0


def test_the_version_tells_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"memorymark {__version__}\nPython 3.")
    assert "tested with torch 2.6 to 2.15, transformers 4.44 to 5.23" in said
