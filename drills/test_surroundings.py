"""Faults around the workers: database, disk, secret key, clock and queue."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import sleep

import pytest

from drills.conftest import StartLab, on_one_database
from drills.lab import Lab, clock_library
from drills.node import STOP_SECONDS
from drills.surroundings import NoSmallDisk, cut_connections, full, locked, small_disk
from drills.web import Browser

pytestmark = pytest.mark.slow

TRIALS = 20
WHOLE = list(range(1, TRIALS + 1))


def _busy(lab: Lab) -> int:
    """An analysis that ``node-1`` is in the middle of until it is released."""
    lab.hold(after=5)
    lab.start_node("node-1")
    pk = _submit_one(lab)
    assert lab.wait_for("is_at_work", pk, 5)
    return pk


def _submit_one(lab: Lab) -> int:
    (pk,) = lab.call("submit")
    return int(pk)


def _finished_whole(lab: Lab, pk: int) -> bool:
    assert lab.wait_for("is_final", pk) == "succeeded", lab.call("facts", pk)
    return sorted(lab.call("facts", pk)["trials"]) == WHOLE


def test_an_analysis_survives_cut_database_connections(
    start_lab: StartLab, postgres_url: str
) -> None:
    lab = start_lab(database_url=postgres_url, trials=TRIALS, seconds=5)
    pk = _busy(lab)
    lab.release()
    cut_connections(postgres_url, 2.5)

    assert _finished_whole(lab, pk)
    assert lab.call("facts", pk)["attempt"] == 1  # the lease held throughout


@pytest.mark.parametrize("seconds", [pytest.param(3, marks=pytest.mark.full), 12])
def test_an_analysis_survives_a_locked_database(
    start_lab: StartLab, tmp_path: Path, seconds: int
) -> None:
    """A lock shorter than the lease does not interrupt it; a longer one restarts it."""
    lab = start_lab(trials=TRIALS, seconds=5)
    pk = _busy(lab)
    with locked(tmp_path / "var"):
        lab.release()
        sleep(seconds)

    assert _finished_whole(lab, pk)


def test_an_analysis_survives_a_full_disk(start_lab: StartLab, tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(tmp_path / "disk", 8))
        except NoSmallDisk as reason:
            pytest.skip(str(reason))
        lab = start_lab(trials=TRIALS, seconds=5, data_dir=disk)
        pk = _busy(lab)
        with full(disk):
            lab.release()
            sleep(4)

        assert _finished_whole(lab, pk)
        lab.end()


def test_a_node_with_another_secret_key_is_named_and_not_counted_on(start_lab: StartLab) -> None:
    lab = start_lab(trials=TRIALS, seconds=1)
    site = lab.start_site()
    (token,) = lab.call("inside_clients.make_tokens", 1, 1)
    odd = lab.start_node("odd", SECRET_KEY="another key than the site has")  # noqa: S106  # of these tests
    assert lab.wait_for("are_alive", 1)
    status, alone = Browser().api(f"{site}/health", token)
    assert (status, alone["nodes_online"]) == (503, 0)
    assert alone["problems"][0].endswith("odd")

    lab.start_node("good")
    pks = lab.call("submit", 3)
    assert all(_finished_whole(lab, pk) for pk in pks)
    status, both = Browser().api(f"{site}/health", token)
    assert (status, both["nodes_online"], both["nodes_with_wrong_key"]) == (200, 1, 1)
    assert {node["name"]: bool(node["problem"]) for node in both["nodes"]} == {
        "good": False,
        "odd": True,
    }
    assert "SECRET_KEY" in odd.said()


@on_one_database
def test_a_task_delivered_twice_runs_once(start_lab: StartLab, database_url: str) -> None:
    lab = start_lab(database_url=database_url, trials=TRIALS, seconds=2)
    pk = _busy(lab)
    lab.start_node("node-2")
    lab.call("deliver_again", pk, 5)
    lab.release()

    assert _finished_whole(lab, pk)
    assert lab.wait_for("queue_is_empty")
    assert lab.call("facts", pk)["attempt"] == 1


_LONGER_THAN_A_LEASE_SECONDS = 8.0


def test_nodes_with_wrong_clocks_do_not_steal_work(start_lab: StartLab, postgres_url: str) -> None:
    """The database's clock decides: a node ten minutes ahead does not take over live work."""
    try:
        clock_library()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    lab = start_lab(database_url=postgres_url, trials=TRIALS, seconds=2)
    lab.hold(after=5)
    lab.start_node("here")
    pks = [_submit_one(lab)]
    assert lab.wait_for("is_at_work", pks[0])
    for name, offset in (("ahead", "+600s"), ("behind", "-600s")):
        lab.start_node(name, clock=offset)
    assert lab.wait_for("are_online", 3)
    pks += lab.call("submit", 5)
    assert all(lab.wait_for("at_work_on", name) for name in ("here", "ahead", "behind"))
    sleep(_LONGER_THAN_A_LEASE_SECONDS)
    lab.release()

    assert all(_finished_whole(lab, pk) for pk in pks)
    facts = [lab.call("facts", pk) for pk in pks]
    assert {fact["attempt"] for fact in facts} == {1}
    assert {fact["node"] for fact in facts} == {"here", "ahead", "behind"}


def test_a_drained_node_finishes_its_work_and_stops(start_lab: StartLab) -> None:
    lab = start_lab(trials=TRIALS)
    pk = _busy(lab)
    (first,) = lab.nodes
    lab.manage("drain", "node-1")
    waiting = _submit_one(lab)
    lab.release()

    assert first.process.wait(STOP_SECONDS) == 0
    assert (lab.call("status", pk), lab.call("status", waiting)) == ("succeeded", "queued")
    first.start()
    assert _finished_whole(lab, waiting)
