"""Queries are still answered when the interactive worker dies, freezes or is stopped."""

from __future__ import annotations

import signal

import pytest

from drills.conftest import DATABASES, StartLab, each_value
from drills.lab import Lab
from drills.node import Node, alive

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]


def _busy(start_lab: StartLab, url: str = "") -> tuple[Lab, Node, int]:
    """A lab whose interactive worker is in the middle of a query until it is released."""
    lab = start_lab(database_url=url)
    lab.hold(after=1)
    node = lab.start_node("node-1")
    assert lab.wait_for("are_online", 1)
    pk = lab.call("submit_query", 3)
    assert lab.wait_for("query_status", pk, "running")
    return lab, node, pk


@pytest.mark.parametrize(
    ("database_url", "role", "number"),
    each_value(DATABASES, ["staff", "guard", "pool"], SIGNALS),
    indirect=["database_url"],
)
def test_a_query_is_answered_when_the_interactive_worker_is_struck(
    start_lab: StartLab, database_url: str, role: str, number: signal.Signals
) -> None:
    lab, node, pk = _busy(start_lab, database_url)
    struck = node.processes()[f"interactive {role}"]
    if role == "staff":  # of worker, monitor and pusher, the one with an engine
        struck = [process for process in struck if process.children()]
    for process in alive(struck):
        process.send_signal(number)
    lab.release()
    assert lab.wait_for("query_status", pk, "answered", "failed") == "answered"


def test_a_stopped_node_requeues_its_query(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab)
    assert node.stop() == 0
    assert lab.call("query_status", pk, "waiting")
    lab.release()
    node.start()
    assert lab.wait_for("query_status", pk, "answered")


def test_an_analysis_and_a_query_do_not_wait_for_each_other(start_lab: StartLab) -> None:
    lab, _, first = _busy(start_lab)
    (pk,) = lab.call("submit")
    assert lab.wait_for("is_at_work", pk)
    second = lab.call("submit_query", 4)
    lab.release()
    assert lab.wait_for("query_status", first, "answered")
    assert lab.wait_for("query_status", second, "answered")
    assert lab.wait_for("is_final", pk) == "succeeded"
