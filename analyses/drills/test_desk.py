"""The desk that dies, freezes or is stopped: each lookup is answered all the same."""

from __future__ import annotations

import signal

import pytest

from analyses.drills.conftest import StartLab
from analyses.drills.lab import Lab
from analyses.drills.node import Node, alive

pytestmark = pytest.mark.slow


def _busy(start_lab: StartLab, url: str = "") -> tuple[Lab, Node, int]:
    """A lab whose desk is in the middle of a lookup; it lasts until it is let go."""
    lab = start_lab(database_url=url)
    lab.hold(after=1)
    node = lab.start_node("node-1")
    assert lab.wait_for("are_online", 1)
    pk = lab.call("look_up", 3)
    assert lab.wait_for("lookup_status", pk, "running")
    return lab, node, pk


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_whatever_befalls_the_desk_the_lookup_is_answered(
    start_lab: StartLab, database_url: str, number: signal.Signals
) -> None:
    lab, node, pk = _busy(start_lab, database_url)
    for process in alive(node.processes()["desk"]):
        process.send_signal(number)
    lab.let_go()
    assert lab.wait_for("lookup_status", pk, "answered", "failed") == "answered"


def test_a_node_that_is_stopped_gives_its_lookup_back(start_lab: StartLab) -> None:
    lab, node, pk = _busy(start_lab)
    assert node.stop() == 0
    assert lab.call("lookup_status", pk, "waiting")
    lab.let_go()
    node.start()
    assert lab.wait_for("lookup_status", pk, "answered")


def test_an_analysis_and_a_lookup_do_not_wait_for_each_other(start_lab: StartLab) -> None:
    lab, _, first = _busy(start_lab)
    (pk,) = lab.call("submit")
    assert lab.wait_for("is_at_work", pk)
    second = lab.call("look_up", 4)
    lab.let_go()
    assert lab.wait_for("lookup_status", first, "answered")
    assert lab.wait_for("lookup_status", second, "answered")
    assert lab.wait_for("is_final", pk) == "succeeded"
