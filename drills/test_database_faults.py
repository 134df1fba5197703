"""PostgreSQL restarted, cut off, frozen or locked, a read-only disk, and a queue without rows.

Each strikes a site and a node that is in the middle of an analysis: nothing is lost, nothing hangs,
and ``/health`` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from drills.conftest import StartLab
from drills.lab import Lab, until
from drills.own_server import NoServer, OwnServer, own_server, tables_locked
from drills.surroundings import NoSmallDisk, read_only, small_disk
from drills.web import Browser

pytestmark = pytest.mark.slow

Fault = Callable[[OwnServer], AbstractContextManager[None]]

TRIALS, BEFORE = 20, 5
WHOLE = list(range(1, TRIALS + 1))
MAX_ANSWER_SECONDS = 8.0
"""Timeout of ``/health`` while nothing answers: that of a new connection or of a locked table."""


@pytest.fixture
def server() -> Iterator[OwnServer]:
    try:
        with own_server() as server:
            yield server
    except NoServer as reason:
        pytest.skip(str(reason))


@contextmanager
def _restarted(server: OwnServer) -> Iterator[None]:
    server.stop()
    yield
    server.start()


def _health(site: str) -> tuple[int, list[str], float]:
    """Status and problems of ``/health``, and the seconds that it took."""
    begun = monotonic()
    status, body = Browser().api(f"{site}/health", "")
    return status, body["problems"], monotonic() - begun


def _busy(lab: Lab, after: int = BEFORE) -> int:
    lab.hold(after=after)
    lab.start_node("node-1")
    (pk,) = lab.call("submit")
    assert lab.wait_for("is_at_work", pk, after)
    return int(pk)


def _finished_whole(lab: Lab, pk: int) -> None:
    assert lab.wait_for("is_final", pk) == "succeeded", lab.call("facts", pk)
    facts = lab.call("facts", pk)
    assert sorted(facts["trials"]) == WHOLE
    assert facts["losses"] <= 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(_restarted, id="restarted"),
        pytest.param(lambda server: server.wire.broken(), id="cut"),
        pytest.param(lambda server: server.frozen(), id="frozen"),
        pytest.param(lambda server: tables_locked(server.url), id="locked"),
    ],
)
def test_a_lab_survives_what_happens_to_its_database(
    start_lab: StartLab, server: OwnServer, fault: Fault
) -> None:
    lab = start_lab(database_url=server.url, migrated=False, trials=TRIALS, seconds=5)
    lab.manage("migrate", "-v0")
    site = lab.start_site()
    pk = _busy(lab)
    assert _health(site)[0] == 200
    with fault(server):
        lab.release()
        sleep(2)
        status, problems, seconds = _health(site)
        assert (status, problems) == (503, ["the database does not respond"])
        assert seconds < MAX_ANSWER_SECONDS

    assert until(lambda: _health(site)[0] == 200, 60)
    _finished_whole(lab, pk)


def test_a_lab_survives_a_read_only_data_folder(
    start_lab: StartLab, postgres_url: str, tmp_path: Path
) -> None:
    try:
        with small_disk(tmp_path / "disk", 64) as disk:
            lab = start_lab(database_url=postgres_url, trials=TRIALS, seconds=5, data_dir=disk)
            site = lab.start_site()
            pk = _busy(lab)
            with read_only(disk):
                lab.release()
                sleep(3)
                status, problems, _ = _health(site)
                assert status == 503
                assert any("Read-only file system" in problem for problem in problems), problems

            assert until(lambda: _health(site)[0] == 200, 60)
            _finished_whole(lab, pk)
            lab.end()
    except NoSmallDisk as reason:
        pytest.skip(str(reason))


def test_deleted_rows_of_the_queue_are_made_again(start_lab: StartLab) -> None:
    lab = start_lab(trials=TRIALS, seconds=2)
    running = _busy(lab)
    waiting = lab.call("submit", 3)
    assert lab.call("delete_jobs") == 4
    lab.release()

    for pk in (running, *waiting):
        _finished_whole(lab, pk)
