from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from engine.client import Changed, Lab, LabError, NotFinished, Refused
from engine.client.tests.fake_lab import FakeLab
from engine.core.errors import InvalidInput


@pytest.fixture
def server() -> Iterator[FakeLab]:
    with FakeLab() as server:
        yield server


@pytest.fixture
def lab(server: FakeLab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr("engine.client.lab.POLL_SECONDS", 0.01)
    return Lab(server.url, "mm_token")


def _facts(number: int = 7, status: str = "succeeded", **changes: Any) -> dict[str, Any]:
    return {
        "id": number, "url": f"http://lab/api/v1/analyses/{number}/", "owner": "ada",
        "status": status, "model": "bert", "gpu": "a10", "measured_gpu": "",
        "current_batch_size": 16, "largest_batch_size": 288, "recommended_batch_size": 128,
        "speedup": 1.5, "source": "predicted", "failure": None, "adopted_at": None,
        "tags": ["thesis"],
        "result": {"verdict": "Batch 288 fits."},
    } | changes  # fmt: skip


def test_an_analysis_is_submitted_and_waited_for(lab: Lab, server: FakeLab) -> None:
    server.respond((201, _facts(status="queued")), _facts(status="running"), _facts())
    found = lab.analyze(model="bert", gpu="a10", current_batch_size=16, wait=30)

    assert (found.status, found.recommended_batch_size) == ("succeeded", 128)
    assert found.verdict == "Batch 288 fits."
    assert server.requests[0].body == {"model": "bert", "gpu": "a10", "current_batch_size": 16}
    assert [request.method for request in server.requests] == ["POST", "GET", "GET"]


def test_without_a_wait_an_analysis_is_only_submitted(lab: Lab, server: FakeLab) -> None:
    server.respond((201, _facts(status="queued", result=None)))

    assert not lab.analyze(model="bert", gpu="a10").is_final
    assert len(server.requests) == 1


def test_waiting_for_an_analysis_times_out(lab: Lab, server: FakeLab) -> None:
    server.respond(_facts(status="running"))

    with pytest.raises(NotFinished, match="Analysis 7 is running"):
        lab.wait(7, 0.05)


def test_the_plan_that_may_change_the_decision_is_waited_for(lab: Lab, server: FakeLab) -> None:
    early = _facts(decision_is_final=False, decision_waits_for="plan")
    server.respond(
        (201, _facts(status="queued", decision_waits_for="analysis")), early, early,
        _facts(moves=["bf16"], decision_is_final=True, decision_waits_for=None),
    )  # fmt: skip
    found = lab.analyze(model="bert", gpu="a10", wait=30)
    assert (found.moves, found.decision_is_final) == (("bf16",), True)


def test_a_plan_that_takes_too_long_leaves_an_answer_that_is_not_final(
    lab: Lab, server: FakeLab
) -> None:
    server.respond(_facts(decision_is_final=False, decision_waits_for="plan"))
    found = lab.wait(7, 0.05)
    assert (found.recommended_batch_size, found.decision_is_final) == (128, False)


def test_a_plan_without_a_worker_is_not_waited_for(lab: Lab, server: FakeLab) -> None:
    server.respond(_facts(decision_is_final=False, decision_waits_for="worker"))
    found = lab.wait(7, 3600)
    assert (found.decision_is_final, len(server.requests)) == (False, 1)


def test_a_site_that_does_not_say_it_is_believed(lab: Lab, server: FakeLab) -> None:
    server.respond(_facts())
    assert lab.wait(7, 3600).decision_is_final


def test_a_failed_analysis_says_why(lab: Lab, server: FakeLab) -> None:
    failure = {"code": "does_not_fit", "reason": "batch 1 needs 30 GiB"}
    server.respond(_facts(status="failed", failure=failure, result=None, speedup=None))

    found = lab.analysis(7)
    assert (found.is_final, found.failure, found.verdict) == (True, "batch 1 needs 30 GiB", "")


def test_all_pages_are_read_from_the_labs_own_address(lab: Lab, server: FakeLab) -> None:
    with FakeLab() as other:
        elsewhere = f"{other.url}/api/v1/analyses/?page=2"
        server.respond(
            {"results": [_facts(3), _facts(2)], "next": elsewhere},
            {"results": [_facts(1)], "next": None},
        )
        found = [analysis.id for analysis in lab.analyses(model="bert", sort="-speedup")]
        assert not other.requests
    assert found == [3, 2, 1]
    assert server.requests[1].path.endswith("?model=bert&sort=-speedup&page=2")


def test_cancelling_a_finished_analysis_changes_nothing(lab: Lab, server: FakeLab) -> None:
    server.respond((409, {"detail": "it has ended"}), _facts(status="failed"))

    assert lab.cancel(7).status == "failed"


def test_adopting_twice_is_no_error(lab: Lab, server: FakeLab) -> None:
    server.respond((409, {"detail": "adopted already"}), _facts(adopted_at="2026-01-01T00:00:00Z"))

    assert lab.adopt(7).adopted


def test_adopting_a_failed_analysis_is_refused(lab: Lab, server: FakeLab) -> None:
    server.respond((409, {"detail": "nothing to adopt"}), _facts(status="failed"))

    with pytest.raises(Refused, match="nothing to adopt"):
        lab.adopt(7)


def test_labels_are_saved_over_the_version_read(lab: Lab, server: FakeLab) -> None:
    server.respond((200, _facts(), {"ETag": '"one"'}), (200, _facts(), {"ETag": '"two"'}))
    read = lab.analysis(7)
    written = lab.label(7, tags=(*read.tags, "new"), version=read.version)

    assert (read.version, written.version) == ('"one"', '"two"')
    assert (server.requests[1].method, server.requests[1].path) == ("PATCH", "/api/v1/analyses/7/")
    assert server.requests[1].headers["If-Match"] == '"one"'
    assert server.requests[1].body == {"tags": ["thesis", "new"]}


def test_labels_can_be_saved_without_reading_them(lab: Lab, server: FakeLab) -> None:
    server.respond(_facts())
    lab.label(7, tags=[], note="")

    assert server.requests[0].body == {"tags": [], "note": ""}
    assert "If-Match" not in server.requests[0].headers


def test_labels_changed_by_someone_else_are_not_overwritten(lab: Lab, server: FakeLab) -> None:
    server.respond((412, {"detail": "changed since you read it"}))
    with pytest.raises(Changed, match="since you read it"):
        lab.label(7, note="mine", version='"one"')


def test_a_prediction_is_waited_for(lab: Lab, server: FakeLab) -> None:
    trial = {"trial": {"batch_size": 64, "fits": True}}
    waiting = {"id": 5, "status": "running", "answer": None, "failure": None}
    server.respond((202, waiting), waiting, waiting | {"status": "answered", "answer": trial})

    assert lab.predict(model="bert", gpu="a10", current_batch_size=64) == trial
    assert server.requests[0].path.startswith("/api/v1/predict/?wait=")
    assert server.requests[1].path == "/api/v1/lookups/5/"


def test_waiting_for_a_plan_times_out(lab: Lab, server: FakeLab) -> None:
    server.respond({"id": 5, "status": "waiting", "answer": None, "failure": None})

    with pytest.raises(NotFinished, match="try again"):
        lab.plan(model="bert", gpu="a10", wait=0.03)


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ({"status": "failed", "failure": {"reason": "too late"}}, LabError, "too late"),
        ({"status": "failed", "failure": {"fields": {"gpu": "no"}}}, InvalidInput, "gpu: no"),
        ({"status": "dropped", "failure": None}, LabError, "dropped"),
    ],
)
def test_a_failed_query_says_why(
    lab: Lab, server: FakeLab, query: dict[str, Any], error: type[Exception], words: str
) -> None:
    server.respond({"id": 5, "answer": None} | query)

    with pytest.raises(error, match=words):
        lab.predict(model="bert", gpu="a10")


def test_analyses_are_compared_and_savings_added_up(lab: Lab, server: FakeLab) -> None:
    server.respond({"rows": []})
    lab.compare([45, 46], base=45)
    lab.savings(by="gpu", kind="realised")

    assert server.requests[0].path == "/api/v1/compare/?ids=45%2C46&base=45"
    assert server.requests[1].path == "/api/v1/savings/?by=gpu&kind=realised"


@pytest.mark.parametrize("body", [{}, [], None, {"id": 1}, "analysis"])
def test_a_response_that_is_no_analysis_is_reported(
    lab: Lab, server: FakeLab, body: object
) -> None:
    server.respond(body)

    with pytest.raises(LabError, match="not an analysis"):
        lab.analysis(1)


def test_client_and_recorder_load_only_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import engine.client, engine.recording; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(new - sys.stdlib_module_names - {'engine'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.strip() == "set()", done.stderr
