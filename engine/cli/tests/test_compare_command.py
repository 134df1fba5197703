"""``compare``: each release answers in an environment of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.answer.tests.test_release_comparison import PROFILE, release
from engine.cli.main import FAILED, OK, main
from engine.versions import environments, software

ASKED = ["compare", "bert", "--gpu", "a10", "--current-batch-size", "16"]
BAD_INPUT = 2

_PYTHON = """#!{python}
import json, sys
with open({words!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
sys.stdout.write({answer!r})
sys.stderr.write({error!r})
sys.exit({status})
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a stand-in for the Python of a release into its environment.

    It answers at once; the file that is returned has the words of each command line.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = tmp_path / "words.jsonl"

    def put(transformers: str, *, error: str = "", **answer: Any) -> Path:
        result = release(transformers, **answer).to_dict() | {"tokens_per_sample": 128}
        home = environments.of_user() / f"transformers={transformers}"
        python = home / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(
            _PYTHON.format(
                python=sys.executable,
                words=os.fspath(words),
                answer="" if error else json.dumps(result),
                error=error,
                status=int(bool(error)),
            )
        )
        python.chmod(0o755)
        (home / "versions.json").write_text(json.dumps({"transformers": transformers}))
        return words

    return put


def releases(*numbers: str) -> list[str]:
    return [word for number in numbers for word in ("--software", f"transformers={number}")]


def test_two_releases_are_compared(
    installed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("4.46.3")
    words = installed("4.47.1", fits=False, peak=30 * 2**30)
    asked = [*ASKED, *releases("4.46.3", "4.47.1"), "--precision", "bf16-mixed"]
    assert main(asked) == OK
    said = capsys.readouterr().out
    assert "Batch 16 runs out of memory with transformers 4.47.1." in " ".join(said.split())
    assert "does not fit" in said
    first, second = map(json.loads, words.read_text().splitlines())
    request = ["bert", "--gpu", "a10", "--current-batch-size", "16", "--precision", "bf16-mixed"]
    ran = ["-m", "engine", "analyze", *request, "--json", "--software"]
    assert first == [*ran, "transformers=4.46.3"]
    assert second == [*ran, "transformers=4.47.1"]


def test_a_script_keeps_its_arguments(
    installed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("4.46.3")
    words = installed("4.47.1", peak=2**30)
    asked = ["compare", "train.py", "--gpu", "a10", *releases("4.46.3", "4.47.1")]
    assert main([*asked, "--json", "--", "--software", "old", "--json"]) == OK
    plain = json.loads(capsys.readouterr().out)
    assert [one["software"]["transformers"] for one in plain["tried"]] == ["4.46.3", "4.47.1"]
    assert plain["comparison"]["after"]["peak_allocated_bytes"] == 2**30
    last = json.loads(words.read_text().splitlines()[-1])
    assert last[3:6] == ["train.py", "--gpu", "a10"]
    assert last[-4:] == ["--", "--software", "old", "--json"]


def test_of_several_releases_the_one_with_the_change_is_found(
    installed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [f"4.{minor}.0" for minor in range(44, 53)]
    for number in numbers:
        words = installed(number, peak=(3 if number >= "4.49.0" else 2) * 2**30)
    assert main([*ASKED, *releases(*numbers), "--json"]) == OK
    compared = json.loads(capsys.readouterr().out)["comparison"]
    before, after = (compared[side]["software"]["transformers"] for side in ("before", "after"))
    assert (before, after) == ("4.48.0", "4.49.0")
    assert len(words.read_text().splitlines()) < len(numbers)


def test_parts_that_differ_are_listed(
    installed: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    installed("4.46.3")
    installed("4.47.1")
    grown = [replace(PROFILE.tensors[0], size_bytes=1200 + 3 * 2**30), *PROFILE.tensors[1:]]
    changed = replace(release("4.47.1"), profile=replace(PROFILE, tensors=grown))
    python = environments.of_user() / "transformers=4.47.1" / "bin" / "python"
    text = f"#!{sys.executable}\nprint({json.dumps(changed.to_dict())!r})\n"
    python.write_text(text)
    assert main([*ASKED, *releases("4.46.3", "4.47.1")]) == OK
    (line,) = [
        " ".join(line.split())
        for line in capsys.readouterr().out.splitlines()
        if "aten.addmm" in line
    ]
    assert line == "layer.*.query aten.addmm activations 12 of <0.01 GiB 12 of 3.00 GiB +3.00"


def test_one_release_is_compared_with_what_is_installed_here(
    installed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed("4.46.3")
    installed("4.99.0")
    here = environments.of_user() / "transformers=4.99.0" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", os.fspath(here))
    assert main([*ASKED, *releases("4.46.3"), "--json"]) == OK
    compared = json.loads(capsys.readouterr().out)["comparison"]
    assert compared["before"]["software"]["transformers"] == "4.46.3"
    assert compared["after"]["software"]["transformers"] == "4.99.0"


def test_a_release_that_fails_is_named_with_its_reason(
    installed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    installed(
        "4.46.3", error="dim line\nerror: BERT base does not fit: even batch 1 needs 30 GiB\n"
    )
    installed("4.47.1")
    assert main([*ASKED, *releases("4.46.3", "4.47.1")]) == FAILED
    said = capsys.readouterr().err
    assert "error: with transformers 4.46.3: BERT base does not fit: even batch 1" in said


def test_what_is_missing_is_installed(
    installed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed("4.46.3")
    made: list[object] = []

    def make(folder: Path, wanted: dict[str, str]) -> environments.Environment:
        made.append((folder, wanted))
        installed("4.47.1")
        return environments.offered(folder)[-1]

    monkeypatch.setattr(environments, "make", make)
    assert main([*ASKED, *releases("4.46.3", "4.47.1")]) == OK
    assert made == [(environments.of_user(), {"transformers": "4.47.1"})]
    assert "Installing transformers 4.47.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "error: --software: name the versions to compare"),
        (["--software", "newest"], "error: --software: 'newest' is not a version"),
        ([*releases("4.46.3"), "--gpu", "local"], "error: --gpu: local is measured"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, *words]) == BAD_INPUT
    assert said in capsys.readouterr().err


def test_the_same_versions_have_nothing_to_compare(
    installed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed("4.46.3")
    monkeypatch.setattr(software, "installed", lambda: {"transformers": "4.46.3"})
    python = environments.of_user() / "transformers=4.46.3" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", os.fspath(python))
    assert main([*ASKED, *releases("4.46.3")]) == FAILED
    assert "they ran with the same versions" in capsys.readouterr().err
