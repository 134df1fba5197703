"""The page of questions is true: each command prints what the page shows."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec

import pytest

from benchmarks.results.documents import ROOT
from engine.cli.tests.documented import assert_prints

TEXT = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^## (.+?)$.*?```console\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
# Plans of real sizes take minutes; test_plan.py has what they print for small models.
ANSWERS = [
    pytest.param(
        command, shown, id=question, marks=pytest.mark.full if command.startswith("plan") else ()
    )
    for question, block in QUESTIONS
    for command, shown in re.findall(r"^\$ memorymark (.+)\n((?:[^$].*\n)+)", block, re.MULTILINE)
]


def test_each_question_has_its_command_and_output() -> None:
    assert len(QUESTIONS) == len(re.findall("^## ", TEXT, re.MULTILINE)) == 10
    assert len(ANSWERS) == len(re.findall(r"^\$ memorymark ", TEXT, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("command", "shown"), ANSWERS)
def test_the_command_answers_as_the_page_shows(
    command: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "sdxl" in command and find_spec("diffusers") is None:
        pytest.skip("needs diffusers")
    assert_prints(shlex.split(command), shown, monkeypatch, capsys)
