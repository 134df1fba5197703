"""The step for GitHub Actions: its shell lines, with stand-ins for memorymark and gh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.answer.check_comment import MARK

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")

_MEMORYMARK = """#!/bin/bash
printf '%s\\n' "$*" >> "$LOG"
batch=$(cat training.toml 2> /dev/null) || { echo "error: --config: cannot be read" >&2; exit 2; }
for ((i = 1; i <= $#; i++)); do
  [ "${!i}" = --json ] && echo "{\\"batch\\": $batch}"
  next=$((i + 1))
  [ "${!i}" = --markdown ] && printf '%s\\nbatch %s\\n' "$MARK" "$batch" > "${!next}"
done
[ "$batch" -le 16 ]
"""
_GH = """#!/bin/bash
printf 'gh %s\\n' "$*" >> "$LOG"
[ "$GH_FAILS" = 1 ] && exit 1
case "$*" in *--jq*) echo "$KNOWN" ;; esac
exit 0
"""


@dataclass
class Runner:
    """A runner of GitHub's, in a checkout of two commits: the base and the change."""

    folder: Path
    base: str

    def run(self, number: int, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the lines of a step."""
        step = ACTION["runs"]["steps"][number]
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        given = {
            "ARGUMENTS": "--config training.toml --gpu 'NVIDIA A10'",
            "BASE": self.base, "FOLDER": ".", "COMMENT": "true", "PULL_REQUEST": "7",
            "GITHUB_REPOSITORY": "lab/models", "KNOWN": "", "GH_FAILS": "", "MARK": MARK,
            "RUNNER_TEMP": str(self.folder / "temp"), "LOG": str(self.folder / "log"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
        }  # fmt: skip
        return subprocess.run(
            shell, cwd=self.folder / "checkout", env=given | variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def written(self, name: str) -> Path:
        return self.folder / "temp" / "memorymark" / name


INSTALL, CHECK_BASE, CHECK = range(3)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    for name, text in (("memorymark", _MEMORYMARK), ("gh", _GH)):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "temp").mkdir()
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*words: str) -> str:
        names = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        ran = subprocess.run(
            ["git", *names, *words], cwd=checkout, check=True, capture_output=True, text=True
        )
        return ran.stdout.strip()

    git("init", "--quiet")
    for batch in ("8", "16"):
        (checkout / "training.toml").write_text(batch)
        git("add", "training.toml")
        git("commit", "--quiet", "--message", f"Train with batch {batch}")
    return Runner(tmp_path, git("rev-parse", "HEAD~1"))


def test_the_base_is_checked_in_its_own_checkout(runner: Runner) -> None:
    ran = runner.run(CHECK_BASE)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(runner.written("base.json").read_text()) == {"batch": 8}
    assert not runner.written("base").exists()
    assert runner.log == ["check --json --config training.toml --gpu NVIDIA A10"]


def test_the_change_is_compared_with_the_base_in_a_new_comment(runner: Runner) -> None:
    runner.run(CHECK_BASE)
    ran = runner.run(CHECK)
    assert ran.returncode == 0, ran.stderr
    assert f"--base {runner.written('base.json')}" in runner.log[1]
    assert "batch 16" in (runner.folder / "summary").read_text()
    looked, posted = runner.log[2:]
    assert MARK in looked
    comment = runner.written("comment.md")
    address = "repos/lab/models/issues/7/comments"
    assert posted == f"gh api --silent --method POST {address} -F body=@{comment}"


def test_a_comment_of_an_earlier_run_is_edited(runner: Runner) -> None:
    assert runner.run(CHECK, KNOWN="41").returncode == 0
    assert "--method PATCH repos/lab/models/issues/comments/41 " in runner.log[-1]


def test_a_check_that_fails_fails_the_step_after_its_comment(runner: Runner) -> None:
    (runner.folder / "checkout" / "training.toml").write_text("32")
    assert runner.run(CHECK).returncode == 1
    assert "--method POST" in runner.log[-1]


def test_without_an_answer_there_is_no_comment(runner: Runner) -> None:
    (runner.folder / "checkout" / "training.toml").unlink()
    ran = runner.run(CHECK)
    assert ran.returncode == 2
    assert "cannot be read" in ran.stderr
    assert not any(line.startswith("gh") for line in runner.log)


def test_a_base_without_an_answer_is_left_out(runner: Runner) -> None:
    ran = runner.run(CHECK_BASE, ARGUMENTS="--config training.toml", FOLDER="missing")
    assert ran.returncode == 0, ran.stderr
    assert not runner.written("base.json").exists()
    runner.run(CHECK)
    assert "--base" not in runner.log[0]


def test_a_token_that_may_not_write_leaves_the_check_as_it_is(runner: Runner) -> None:
    ran = runner.run(CHECK, GH_FAILS="1")
    assert ran.returncode == 0
    assert "::warning::The comment could not be written" in ran.stdout


@pytest.mark.parametrize("variables", [{"PULL_REQUEST": ""}, {"COMMENT": "false"}])
def test_only_a_pull_request_that_wants_one_gets_a_comment(
    runner: Runner, variables: dict[str, str]
) -> None:
    assert runner.run(CHECK, **variables).returncode == 0
    assert not any(line.startswith("gh") for line in runner.log)
    assert (runner.folder / "summary").exists()


def test_arguments_are_words_and_no_shell(runner: Runner) -> None:
    runner.run(CHECK, ARGUMENTS="--config training.toml --gpu $(touch injected) ; touch injected")
    assert not (runner.folder / "checkout" / "injected").exists()


def test_no_input_is_put_into_the_shells_lines() -> None:
    lines = [step["run"] for step in ACTION["runs"]["steps"]]
    assert all("${{" not in text for text in lines)
    assert {*ACTION["inputs"]} == {
        "arguments", "working-directory", "comment", "install", "token",
    }  # fmt: skip


def test_the_hook_runs_the_check_of_a_file() -> None:
    hook: dict[str, Any]
    (hook,) = HOOKS
    assert hook["entry"].split() == ["memorymark", "check"]
    assert hook["language"] == "system"
    assert hook["pass_filenames"] is False
