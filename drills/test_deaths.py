"""An analysis whose processes die or freeze still ends once, with all its trials."""

from __future__ import annotations

import signal

import pytest

from drills.conftest import DATABASES, StartLab, each_value, on_one_database
from drills.lab import Lab, until
from drills.node import STOP_SECONDS, Node, alive

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]
TRIALS, BEFORE = 20, 5
WHOLE = list(range(1, TRIALS + 1))


def _busy(start_lab: StartLab, url: str) -> tuple[Lab, Node, int]:
    """A lab whose node is in the middle of an analysis, and stays there until released."""
    lab = start_lab(database_url=url, trials=TRIALS, seconds=3)
    lab.hold(after=BEFORE)
    node = lab.start_node("node-1")
    assert lab.wait_for("are_online", 1)
    (pk,) = lab.call("submit")
    assert lab.wait_for("is_at_work", pk, BEFORE)
    return lab, node, pk


@pytest.mark.parametrize(
    ("database_url", "role", "number"),
    each_value(DATABASES, ["staff", "guard", "pool", "node"], SIGNALS),
    indirect=["database_url"],
)
def test_an_analysis_finishes_whichever_process_dies(
    start_lab: StartLab, database_url: str, role: str, number: signal.Signals
) -> None:
    lab, node, pk = _busy(start_lab, database_url)
    node.strike(role, number)
    lab.release()
    if role == "node":
        if number == signal.SIGSTOP:  # the workers do not need it; it resumes later
            lab.wait_for("is_final", pk)
            node.process.send_signal(signal.SIGCONT)
        else:
            node.process.wait(STOP_SECONDS)
            node.keep()

    assert lab.wait_for("is_final", pk) == "succeeded"
    facts = lab.call("facts", pk)
    assert sorted(facts["trials"]) == WHOLE
    assert facts["trials"][:BEFORE] == WHOLE[:BEFORE]
    assert facts["losses"] <= 1


def test_an_analysis_whose_engine_is_killed_goes_on_with_another(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab, "")
    node.strike("engine", signal.SIGKILL)
    assert lab.wait_for("is_attempt", pk, 2)
    lab.release()

    assert lab.wait_for("is_final", pk) == "succeeded"
    assert lab.call("facts", pk)["trials"] == WHOLE


def test_an_analysis_fails_with_a_reason_when_its_engine_is_ended(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab, "")
    node.strike("engine", signal.SIGTERM)

    assert lab.wait_for("is_final", pk) == "failed"
    facts = lab.call("facts", pk)
    assert facts["code"] == "crashed"
    assert facts["trials"] == WHOLE[:BEFORE]


def test_an_analysis_with_a_frozen_engine_can_be_cancelled(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab, "")
    node.strike("engine", signal.SIGSTOP)
    assert lab.call("cancel", pk)

    assert lab.wait_for("is_final", pk) == "cancelled"


@pytest.mark.parametrize("running", [True, pytest.param(False, marks=pytest.mark.full)])
def test_running_and_queued_analyses_can_be_cancelled(start_lab: StartLab, running: bool) -> None:
    """``python -m drills.speed`` measures how long it takes."""
    lab, _, pk = _busy(start_lab, "")
    if not running:
        (pk,) = lab.call("submit")  # it waits behind the other
    assert lab.call("cancel", pk)

    assert lab.wait_for("is_final", pk) == "cancelled"
    lab.release()
    (after,) = lab.call("submit")
    assert lab.wait_for("is_final", after) == "succeeded"


@on_one_database
def test_an_analysis_survives_the_death_of_the_whole_cluster(
    start_lab: StartLab, database_url: str
) -> None:
    lab, node, pk = _busy(start_lab, database_url)
    node.kill()
    lab.release()
    node.start()

    assert lab.wait_for("is_final", pk) == "succeeded"
    assert sorted(lab.call("facts", pk)["trials"]) == WHOLE


def test_frozen_processes_do_not_outlive_the_node_process(start_lab: StartLab) -> None:
    _, node, _ = _busy(start_lab, "")
    everything = [process for group in node.processes().values() for process in group]
    node.strike("pool", signal.SIGSTOP)
    node.strike("engine", signal.SIGSTOP)
    node.process.kill()
    node.process.wait()

    assert until(lambda: not alive(everything))


def test_an_analysis_whose_worker_dies_twice_is_lost(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab, "")
    for attempt in (1, 2):
        assert lab.wait_for("is_attempt", pk, attempt)
        node.strike("staff", signal.SIGKILL)

    assert lab.wait_for("is_final", pk) == "lost"
    assert lab.call("facts", pk)["code"] == "worker_lost"
