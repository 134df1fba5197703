"""The benchmark of public scripts: its list, and how an outcome is judged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.public import outcome, stand_ins
from benchmarks.public.outcome import Verdict, command, judge, summary
from benchmarks.public.scripts import PublicScript, public_scripts
from benchmarks.public.stand_ins import make_stand_ins

SCRIPT = PublicScript(
    name="a script",
    repository="someone/something",
    commit="0" * 40,
    path="examples/train.py",
    batch_flag="batch-size",
    arguments=("--data", "{data}/images"),
    links={"Datasets": "mnist"},
    refused="no DataLoader feeds",
)
ANSWER = json.dumps({"peak_allocated_bytes": 2**30})


def _ran(status: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], status, stdout, stderr)


def test_the_list_has_fifty_scripts_of_eight_projects_by_commit() -> None:
    scripts = public_scripts()
    assert len(scripts) >= 50
    assert all(len(script.commit) == 40 for script in scripts)
    projects = {script.repository.partition("/")[2] for script in scripts}
    assert projects >= {"transformers", "trl", "peft", "diffusers", "torchvision"}
    assert projects >= {"pytorch-image-models", "examples", "pytorch-lightning"}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ('[[script]]\nname = "a"\nrepository = "x/y"\npath = "a.py"\n' * 2, "two .* called a"),
        ('[[script]]\nname = "a"\nrepository = "x/z"\npath = "a.py"\n', "no commit for x/z"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, rows: str, says: str) -> None:
    file = tmp_path / "scripts.toml"
    file.write_text(f'[commits]\n"x/y" = "1"\n{rows}', encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        public_scripts(file)


def test_stand_ins_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makers = {name: stand_ins._MAKERS[name] for name in ("texts", "captioned")}
    monkeypatch.setattr(stand_ins, "_MAKERS", makers)
    make_stand_ins(tmp_path)
    rows = (tmp_path / "texts" / "chat" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == stand_ins.ROWS
    assert {"messages"} == set(json.loads(rows[0]))
    (tmp_path / "captioned" / "metadata.jsonl").unlink()
    make_stand_ins(tmp_path)
    assert not (tmp_path / "captioned" / "metadata.jsonl").exists()


def test_it_is_started_as_a_user_would(tmp_path: Path) -> None:
    words = command(SCRIPT, tmp_path / "there", tmp_path / "data")
    file = tmp_path / "there" / "someone" / "something" / "examples" / "train.py"
    assert words[:2] == ["predict", str(file)]
    assert "--batch-flag=batch-size" in words
    assert words[words.index("--") :] == ["--", "--data", f"{tmp_path}/data/images"]


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([_ran(0, ANSWER), _ran(0, '{"predicted": 1000, "measured": 1005}')], Verdict.PREDICTED),
        ([_ran(0, ANSWER), _ran(0, '{"predicted": 1000, "measured": 1200}')], Verdict.WRONG),
        ([_ran(0, ANSWER), _ran(1, "", "error: it needs a GPU")], Verdict.PREDICTED),
        ([_ran(1, "", "Trace\nerror: no DataLoader feeds the steps")], Verdict.REFUSED),
        ([_ran(1, "", "Trace\nerror: something else")], Verdict.REFUSED_WRONGLY),
        ([_ran(1)], Verdict.REFUSED_WRONGLY),
        ([_ran(outcome.LATE, "", "no answer within 1 s")], Verdict.NO_ANSWER),
    ],
)
def test_an_outcome_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[Any], verdict: Verdict
) -> None:
    waiting = iter(answers)
    monkeypatch.setattr(outcome, "_run", lambda *_: next(waiting))
    found = judge(SCRIPT, tmp_path / "checkouts", tmp_path / "data", compares=True)
    assert found.verdict is verdict
    assert not list(waiting)
    assert (found.refused == "") is (found.gpu_bytes is not None)
    assert summary([found])[verdict] == 1
    link = tmp_path / "checkouts" / "someone" / "something" / "Datasets"
    assert link.readlink() == tmp_path / "data" / "mnist"


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    sleeps = "'import time; time.sleep(60)'"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps}])"
    ran = outcome._run(SCRIPT, tmp_path / "checkouts", tmp_path / "data", 0.2, "-c", starts)
    assert (ran.returncode, ran.stderr) == (outcome.LATE, "no answer within 0.2 s")
