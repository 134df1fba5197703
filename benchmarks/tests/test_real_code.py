"""The suite of training scripts: its cases, its table, and its traces against real steps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.real_code import __main__ as real_code
from benchmarks.real_code.cases import CASES, FOLDER, Case
from benchmarks.real_code.comparison import Comparison, compare, peaks_on_the_cpu
from benchmarks.results import accuracy_tables
from benchmarks.results.files import Result, read
from engine.script.process import sandbox

FOUND = Comparison("loop", "a loop", 8, 0, 3.2, 2**30, "", 5_000, 5_000, "")
OTHERS = {
    "unequal": (Comparison("loop", "", 8, 0, 3.2, 2**30, "", 5_008, 5_000, ""), "+8 B of 5,000"),
    "failed": (Comparison("loop", "", 8, 0, 3.2, 2**30, "", None, None, "no data"), "no data"),
    "not run": (Comparison("loop", "", 8, 0, 3.2, 2**30, "", None, None, ""), "not run"),
}

SAMPLE = {"plain loop", "nanoGPT style", "GAN", "LSTM", "GNN", "Trainer, LoRA"}
"""The scripts that ``make test-slow`` runs: each way of training once."""


def test_every_script_has_a_row() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {case.script for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


def test_no_script_knows_of_memorymark() -> None:
    for path in FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8").lower()
        assert "memorymark" not in text, path.name
        assert "engine" not in text, path.name


@pytest.mark.parametrize(("kind", "status"), [("unequal", 1), ("failed", 1), ("not run", 0)])
def test_the_status_says_whether_all_are_equal(
    kind: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other, words = OTHERS[kind]
    found = iter([FOUND, other])
    monkeypatch.setattr(real_code, "compare", lambda case, python: next(found))
    assert real_code.main(["--here", CASES[0].name, CASES[1].name]) == status
    shown = capsys.readouterr().out
    assert "equal" in shown
    assert words in shown


def test_what_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "Tracing ...\nerror: a reason")

    monkeypatch.setattr(subprocess, "run", refuse)
    found = compare(CASES[0], Path("python"))
    assert (found.refused, found.failure) == ("error: a reason", "error: a reason")
    assert not found.is_equal


def test_a_row_of_the_table_says_what_was_found() -> None:
    def one(name: str) -> Result:
        result = read(name)
        rows = [vars(FOUND), vars(FOUND) | {"gpu_bytes": None, "predicted_bytes": 4_999}]
        result.figures["scripts"][:] = rows
        return result

    *_, first, second = accuracy_tables.scripts(one).splitlines()
    assert first == "| loop | a loop | 0 | 3.2 | 1,024 MiB | equal |"
    assert second == "| loop | a loop | 0 | 3.2 | refused, with its line | -1 B |"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in SAMPLE else pytest.mark.full)
        for case in CASES
        if case.runs and not case.packages
    ],
)
def test_a_trace_equals_the_real_run(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "temporary_folder", lambda: "/nowhere")  # this one is in it
    peaks = peaks_on_the_cpu(case)
    assert peaks["predicted"] == peaks["measured"]
    assert list(tmp_path.iterdir()) == []
