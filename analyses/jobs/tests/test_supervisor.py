"""A child of the node process is restarted when it dies or hangs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest
from django.db import OperationalError, connections

from analyses.jobs import supervisor, timeouts
from analyses.jobs.supervisor import Supervisor


class Child:
    """Stands in for a process."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self.returncode: int | None = None
        self.heard_at = monotonic()
        self.stopped = False

    def listen(self) -> None:
        """Hears nothing."""

    def stop(self, _grace_seconds: float) -> None:
        self.stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    children: list[Child] = []

    def start(*command: str) -> Child:
        children.append(Child(*command))
        return children[-1]

    monkeypatch.setattr(supervisor, "ChildProcess", start)
    monkeypatch.setattr(connections, "close_all", lambda: None)
    return children


def supervisor_of_workers(should_be_heard: Callable[[], bool] = lambda: True) -> Supervisor:
    return Supervisor("workers", should_be_heard)


def make_silent(child: Child) -> None:
    child.heard_at -= timeouts.HEARTBEAT_SILENCE_SECONDS + 1


def test_a_dead_child_is_restarted(started: list[Child]) -> None:
    workers = supervisor_of_workers()
    workers.look_after()
    workers.look_after()
    assert [child.command for child in started] == [("pool", "workers")]

    started[0].returncode = -9
    workers.look_after()
    assert started[0].stopped
    workers.look_after()
    assert len(started) == 2


def test_a_child_that_dies_again_is_restarted_after_a_pause(started: list[Child]) -> None:
    workers = supervisor_of_workers()
    for _ in range(2):
        workers.look_after()
        started[-1].returncode = 1
        workers.look_after()
    workers.look_after()
    assert len(started) == 2


def test_a_silent_child_is_stopped(started: list[Child]) -> None:
    workers = supervisor_of_workers()
    workers.look_after()
    make_silent(started[0])
    workers.look_after()
    assert started[0].stopped


def test_a_child_with_a_reason_for_silence_is_left_alone(started: list[Child]) -> None:
    def nobody_knows() -> bool:
        raise OperationalError("away")

    for should_be_heard in (lambda: False, nobody_knows):
        workers = supervisor_of_workers(should_be_heard)
        workers.look_after()
        make_silent(started[-1])
        workers.look_after()
        assert not started[-1].stopped
        assert monotonic() - started[-1].heard_at < timeouts.HEARTBEAT_SILENCE_SECONDS
