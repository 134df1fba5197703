"""The real cluster: it runs analyses, shuts down gracefully, and survives dying processes."""

from __future__ import annotations

import signal

import pytest

from drills.conftest import StartLab
from drills.lab import Lab, until
from drills.node import Node, alive

pytestmark = pytest.mark.slow


def _start(start_lab: StartLab, **options: object) -> tuple[Lab, Node]:
    lab = start_lab(**options)
    node = lab.start_node("node-1")
    assert lab.wait_for("are_online", 1)
    return lab, node


def _one(lab: Lab) -> int:
    (pk,) = lab.call("submit")
    return int(pk)


def test_the_cluster_runs_an_analysis_and_stops(start_lab: StartLab) -> None:
    lab, node = _start(start_lab)
    pk = _one(lab)

    assert lab.wait_for("is_final", pk) == "succeeded"
    facts = lab.call("facts", pk)
    assert (facts["node"], facts["attempt"], facts["trials"]) == ("node-1", 1, [1, 2, 3, 4])
    processes = [p for role in node.processes().values() for p in role]
    assert node.stop() == 0
    assert not alive(processes)
    assert "again" not in node.said()


def test_a_members_many_analyses_do_not_hold_up_anothers(start_lab: StartLab) -> None:
    lab = start_lab(seconds=0.2)
    lab.call("submit", 4)
    lab.call("submit", 2, "a10", "lin")
    lab.start_node("node-1")

    assert lab.wait_for("all_final")
    assert lab.call("members_in_turn") == ["ada", "lin", "ada", "lin", "ada", "ada"]


def test_a_busy_cluster_requeues_its_analysis_when_stopped(start_lab: StartLab) -> None:
    lab, node = _start(start_lab, trials=20)
    lab.hold(after=5)
    pk = _one(lab)
    assert lab.wait_for("is_at_work", pk, 5)
    assert node.stop() == 0

    assert lab.call("status", pk) == "queued"
    known = lab.call("facts", pk)["trials"]
    assert known == [1, 2, 3, 4, 5]
    lab.release()
    node.start()
    assert lab.wait_for("is_final", pk) == "succeeded"
    facts = lab.call("facts", pk)
    # 3 if another worker had not yet noticed the shutdown and claimed it in between.
    assert facts["attempt"] in (2, 3)
    assert facts["losses"] == 0
    assert facts["trials"] == list(range(1, 21))  # none twice, although it was started twice


@pytest.mark.parametrize(
    "role", ["pool", *(pytest.param(role, marks=pytest.mark.full) for role in ("guard", "staff"))]
)
def test_the_cluster_recovers_when_idle_processes_are_killed(
    start_lab: StartLab, role: str
) -> None:
    lab, node = _start(start_lab)
    assert lab.wait_for("is_final", _one(lab)) == "succeeded"
    for process in node.processes()[role]:
        process.send_signal(signal.SIGKILL)

    assert lab.wait_for("is_final", _one(lab)) == "succeeded"
    assert node.process.poll() is None


def test_no_process_outlives_the_node_process(start_lab: StartLab) -> None:
    lab, node = _start(start_lab)
    lab.hold(after=1)
    assert lab.wait_for("is_at_work", _one(lab))
    others = [p for role, ps in node.processes().items() for p in ps if role != "node"]
    assert len(others) >= 5
    node.process.kill()
    node.process.wait()

    assert until(lambda: not alive(others))
