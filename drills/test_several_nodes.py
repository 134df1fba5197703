"""Several nodes on one PostgreSQL share the work and take over from a node that dies."""

from __future__ import annotations

import signal

import pytest

from drills.conftest import StartLab

pytestmark = pytest.mark.slow

TRIALS = 10
WHOLE = list(range(1, TRIALS + 1))


def test_three_nodes_share_the_work_and_take_over(start_lab: StartLab, postgres_url: str) -> None:
    lab = start_lab(database_url=postgres_url, trials=TRIALS, seconds=2)
    lab.hold(after=1)
    nodes = [lab.start_node(f"node-{number}") for number in (1, 2, 3)]
    assert lab.wait_for("are_online", 3)
    pks = lab.call("submit", 12)
    assert all(lab.wait_for("at_work_on", node.name) for node in nodes)
    nodes[1].process.send_signal(signal.SIGKILL)  # and it is not restarted
    lab.release()

    assert lab.wait_for("all_final")
    facts = [lab.call("facts", pk) for pk in pks]
    assert {fact["status"] for fact in facts} == {"succeeded"}
    assert all(fact["trials"] == WHOLE for fact in facts)
    assert {fact["node"] for fact in facts} >= {"node-1", "node-3"}
    assert sum(fact["losses"] for fact in facts) == 1  # the one node-2 was running


def test_a_gpu_measures_one_analysis_at_a_time(start_lab: StartLab, postgres_url: str) -> None:
    """Even with two workers on one GPU by mistake; and predictions do not wait for it."""
    lab = start_lab(database_url=postgres_url, trials=TRIALS, seconds=2)
    for name, gpu in (("node-1", "GPU-1"), ("twin-of-1", "GPU-1"), ("node-2", "GPU-2")):
        lab.start_node(name, gpu_uuid=gpu)
    assert lab.wait_for("are_online", 3)
    lab.hold(gpu="local")
    measured = lab.call("submit", 8, "local")
    (predicted,) = lab.call("submit")

    assert lab.wait_for("is_final", predicted) == "succeeded"
    assert lab.call("unfinished") == len(measured)
    lab.release()
    assert lab.wait_for("all_final")
    facts = [lab.call("facts", pk) for pk in measured]
    assert {fact["status"] for fact in facts} == {"succeeded"}
    assert {fact["device"] for fact in facts} == {"GPU-1", "GPU-2"}
    assert lab.call("overlapping") == []
