"""The real cluster on a database of its own: it answers, and it stops in good order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings

Behave = Callable[[str], list[str]]

SUBMIT = """
import django; django.setup()
from django.contrib.auth.models import User
from analyses import services
owner, _ = User.objects.get_or_create(username="ada")
print(services.submit(owner, {"model": "bert", "gpu": "a10"}).pk)
"""
READ = """
import django; django.setup()
from analyses.models import Analysis, Node
analysis = Analysis.objects.latest("pk")
print(analysis.status, analysis.failure_code or "-", Node.objects.count())
"""


class Lab:
    """A database and a cluster in a folder of their own."""

    def __init__(self, folder: Path, engine_command: list[str]) -> None:
        (folder / "lab_settings.py").write_text(
            "from memorymark_site.settings import *\n"
            f"ENGINE_COMMAND = {engine_command!r}\n"
            "QUEUE_STANDSTILL_SECONDS = 2\n"
            "STORAGES['staticfiles']['BACKEND'] = "
            "'django.contrib.staticfiles.storage.StaticFilesStorage'\n"
        )
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        self._environment = kept | {
            "DJANGO_SETTINGS_MODULE": "lab_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(settings.BASE_DIR)]),
            "MEMORYMARK_DATA_DIR": str(folder / "var"),
        }
        self.python("manage.py", "migrate", "-v0")
        self.cluster = subprocess.Popen(
            [sys.executable, "manage.py", "cluster"],
            cwd=settings.BASE_DIR,
            env=self._environment,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=settings.BASE_DIR,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self) -> None:
        self.python("-c", SUBMIT)

    def read_until(self, status: str) -> str:
        for _ in range(40):
            read = self.python("-c", READ)
            if read.startswith(status):
                return read
            time.sleep(0.1)
        return read

    def group(self) -> dict[int, int]:
        """The processes of the cluster that live: number and number of the parent."""
        command = ["ps", "-Ao", "pgid=,pid=,ppid=,stat="]
        listed = subprocess.run(command, capture_output=True, text=True)
        rows = [line.split() for line in listed.stdout.splitlines()]
        return {
            int(pid): int(parent)
            for group, pid, parent, state in rows
            if int(group) == self.cluster.pid and not state.startswith("Z")
        }


@pytest.fixture
def start_lab(tmp_path: Path, fake_engine: Behave) -> Iterator[Callable[[str], Lab]]:
    labs: list[Lab] = []

    def start(behaviour: str) -> Lab:
        labs.append(Lab(tmp_path, fake_engine(behaviour)))
        return labs[0]

    yield start
    for lab in labs:
        if lab.cluster.poll() is None:
            os.killpg(lab.cluster.pid, signal.SIGKILL)
        if lab.cluster.stderr and not lab.cluster.stderr.closed:
            lab.cluster.stderr.close()
        lab.cluster.wait()


def test_it_answers_and_an_idle_one_stops_at_once(start_lab: Callable[[str], Lab]) -> None:
    lab = start_lab("success")
    lab.submit()

    assert lab.read_until("succeeded") == "succeeded - 1"
    os.killpg(lab.cluster.pid, signal.SIGTERM)  # to all of its processes, as honcho does
    assert lab.cluster.wait(10) == 0  # and not by KILL
    assert not lab.group()


def test_a_busy_one_ends_its_analysis_in_words(start_lab: Callable[[str], Lab]) -> None:
    lab = start_lab("hang")
    lab.submit()
    assert lab.read_until("running").startswith("running")

    lab.cluster.send_signal(signal.SIGTERM)  # to the one process only, as kill does
    assert lab.cluster.wait(10) == 0
    assert not lab.group()
    assert lab.read_until("failed") == "failed worker_stopped 1"


def test_one_that_has_died_inside_says_so_and_leaves_nobody(
    start_lab: Callable[[str], Lab],
) -> None:
    lab = start_lab("success")
    lab.submit()
    lab.read_until("succeeded")
    sentinel = next(pid for pid, parent in lab.group().items() if parent == lab.cluster.pid)
    os.kill(sentinel, signal.SIGKILL)

    assert lab.cluster.wait(10) == 1
    assert not lab.group()
    assert "has died" in lab.cluster.communicate()[1]


def test_one_whose_idle_worker_was_killed_works_on(start_lab: Callable[[str], Lab]) -> None:
    lab = start_lab("success")
    lab.submit()
    lab.read_until("succeeded")
    for _ in range(2):  # the second time it is one that was started again
        guard = next(pid for pid, parent in lab.group().items() if parent == lab.cluster.pid)
        for pid, parent in lab.group().items():
            if parent == guard:  # worker, monitor and pusher: all wait, none has work
                os.kill(pid, signal.SIGKILL)
        lab.submit()

        assert lab.read_until("succeeded") == "succeeded - 1"
    lab.cluster.send_signal(signal.SIGTERM)
    assert lab.cluster.wait(10) == 0
    assert not lab.group()
