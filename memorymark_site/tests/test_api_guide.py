"""The examples of the API guide, run as written on a real site with its engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.running import ROOT, Site
from engine.client import Lab

pytestmark = [pytest.mark.slow, pytest.mark.torch]

GUIDE = (ROOT / "docs" / "api.md").read_text()

TIMEOUT_SECONDS = 900

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables of a member's script."""
    folder = tmp_path_factory.mktemp("site")
    site = Site(folder, settings={"PREDICT_DEADLINE_SECONDS": str(TIMEOUT_SECONDS)})
    try:
        site.add_member("ada")
        made = subprocess.run(
            [sys.executable, "manage.py", "token", "ada"],
            cwd=ROOT,
            env=os.environ | {"MEMORYMARK_DATA_DIR": str(folder / "data")},
            capture_output=True,
            text=True,
            check=True,
        )
        token = made.stdout.split()[-1]
        _ask_ahead(Lab(site.url, token))
        yield os.environ | {"MEMORYMARK_URL": site.url, "MEMORYMARK_TOKEN": token}
    finally:
        site.end()


def _ask_ahead(lab: Lab) -> None:
    """Run another request first, so that the guide's ``wait=60`` does not include loading torch."""
    other = {"model": "resnet-18", "gpu": "t4", "current_batch_size": 8}
    assert lab.analyze(wait=TIMEOUT_SECONDS, **other).is_final
    assert lab.predict(wait=TIMEOUT_SECONDS, **other)


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )

    return run


def _examples(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(found) > 1
    return "\n".join(found)


def test_the_bash_examples_work(run: Run) -> None:
    done = run("bash", "-euo", "pipefail", "-c", _examples("bash"))

    assert done.returncode == 0, done.stderr + done.stdout
    assert "fits" in done.stdout
    assert "enter a whole number" in done.stdout
    assert "Changed by someone else" in done.stdout


def test_the_python_examples_work(run: Run) -> None:
    done = run(sys.executable, "-c", _examples("python"))

    assert done.returncode == 0, done.stderr + done.stdout
    assert "fits" in done.stdout
    assert done.stdout.rstrip().endswith("succeeded")


def test_the_script_prints_the_verdict(run: Run) -> None:
    done = run("bash", str(ROOT / "docs" / "analyze.sh"))

    assert done.returncode == 0, done.stderr
    assert "fits" in done.stdout


def test_the_script_reports_mistakes(run: Run) -> None:
    done = run("bash", str(ROOT / "docs" / "analyze.sh"), '{"model": "bort", "gpu": "a10"}')

    assert done.returncode == 2
    assert "unknown model" in done.stderr
