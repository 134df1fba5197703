"""A node checks itself once for its GPU, driver and versions, and the lab sees and uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.gpus import self_checks
from analyses.gpus.self_checks import Stored, shown
from analyses.jobs import checking, lab_state, lease, nodes, recovery, worker
from analyses.jobs.engine_session import asked_of
from analyses.jobs.measured_steps import newest
from analyses.jobs.queue import WORKERS, LabBroker
from analyses.jobs.tests.queueing import next_job, submit_query
from analyses.models import AT_WORK, CheckState, Job, JobKind, Node, QueryKind, Status
from analyses.tests.factories import make_analysis, make_user
from engine.gpus.checked import STEP, Comparison, Device, Identity, Problem, SelfCheck
from engine.gpus.driver import LocalGpu

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PROBLEM = Problem("the prediction of BERT", "AttributeError: no __name__", "Install torch 2.13.")


def made_check(identity: Identity | None = None, **fields: object) -> SelfCheck:
    """A self-check of an A10 whose predictions were 0.3% and 6% off."""
    given: dict[str, object] = {
        "when": "2026-11-26T10:00:00+00:00",
        "identity": identity or nodes.identity(),
        "seconds": 60.0,
        "device": Device("cuda", "NVIDIA A10", 23_696_375_808, 8.6, "13.0"),
        "step_launch_seconds": 3e-5,
        "comparisons": (
            Comparison("BERT", {"model": "bert"}, 8, "peak_allocated_bytes", 1000.0, 997.1),
            Comparison("BERT", {"model": "bert"}, 8, STEP, 0.1, 0.1055),
        ),
    }
    return SelfCheck(**given | fields)  # type: ignore[arg-type]  # each test sets what it needs


def checked_node(check: SelfCheck | None = None, problem: str = "") -> Node:
    nodes.register()
    Node.objects.update(self_check=Stored(check, problem).to_dict())
    return Node.objects.get()


def state_of(node: Node) -> CheckState:
    return shown(Node.objects.get(pk=node.pk)).state


@pytest.fixture
def answering(fake_engine: Callable[[str], list[str]]) -> Callable[[SelfCheck], None]:
    """Lets the engine answer with a self-check."""

    def answer(check: SelfCheck) -> None:
        result = Path(fake_engine("self_check")[-1])
        result.with_name("self_check.json").write_text(json.dumps(check.to_dict()))
        worker.engines.close()

    return answer


# Once for a GPU, its driver and versions


def test_a_node_checks_itself_at_its_first_start_and_not_again(
    here: nodes.Here, answering: Callable[[SelfCheck], None]
) -> None:
    nodes.register()
    assert state_of(Node.objects.get()) == CheckState.NOT_CHECKED
    checking.ask_if_due()
    node = Node.objects.get()
    assert state_of(node) == CheckState.WAITING
    assert next_job(LabBroker(WORKERS)) == node.check_job

    check = made_check()
    answering(check)
    worker.run(node.check_job.pk)
    node = Node.objects.get()
    assert (node.check_job.state, node.check_job.device) == (Status.SUCCEEDED, here.gpu_uuid)
    assert shown(node) == self_checks.Shown(CheckState.CHECKED, check.sentence, (), check)

    nodes.register()
    checking.ask_if_due()
    assert state_of(node) == CheckState.CHECKED
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    "other",
    [
        LocalGpu("NVIDIA A10", "GPU-1", 1, "600.1"),
        LocalGpu("NVIDIA A10G", "GPU-1", 1, "580.95"),
        LocalGpu("NVIDIA A10", "GPU-2", 1, "580.95"),
    ],
)
def test_a_new_driver_or_gpu_is_checked_again(
    here: nodes.Here, monkeypatch: pytest.MonkeyPatch, other: LocalGpu
) -> None:
    node = checked_node(made_check())
    checking.ask_if_due()
    assert not Job.objects.exists()
    monkeypatch.setattr(nodes, "here", lambda: replace(here, gpu=other))
    checking.ask_if_due()
    assert state_of(node) == CheckState.WAITING


def test_other_versions_are_checked_again(here: nodes.Here) -> None:
    node = checked_node(made_check(replace(nodes.identity(), torch="2.6.0")))
    checking.ask_if_due()
    assert state_of(node) == CheckState.WAITING


def test_a_node_without_a_gpu_is_checked_only_when_asked(
    here: nodes.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: replace(here, gpu=None))
    nodes.register()
    checking.ask_if_due()
    assert not Job.objects.exists()
    node = Node.objects.get()
    assert checking.ask(node)
    assert next_job(LabBroker(WORKERS)) == Job.objects.get()


def test_a_check_is_never_queued_twice(here: nodes.Here) -> None:
    nodes.register()
    node = Node.objects.get()
    assert checking.ask(node)
    assert not checking.ask(node)
    for state in AT_WORK:
        Job.objects.update(state=state)
        assert not checking.ask(node)
        assert state_of(node) == CheckState.CHECKING
    Job.objects.update(state=Status.SUCCEEDED)
    assert checking.ask(node)
    assert Job.objects.get().state == Status.QUEUED


def test_another_node_does_not_take_the_check(
    here: nodes.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.register()
    checking.ask_if_due()
    monkeypatch.setattr(nodes, "here", lambda: replace(here, name="lab-2"))
    nodes.register()
    assert next_job(LabBroker(WORKERS)) is None


def test_a_check_and_a_measurement_wait_for_each_other(here: nodes.Here, member: User) -> None:
    analysis = make_analysis(member, measured_gpu="NVIDIA A10")
    nodes.register()
    checking.ask_if_due()
    check = Node.objects.get().check_job
    taken, waiting = analysis.job, check
    for _ in range(2):
        assert lease.claim(taken.pk, here.name, here.gpu_uuid)
        assert next_job(LabBroker(WORKERS)) is None
        Job.objects.filter(pk=taken.pk).update(state=Status.FAILED)
        Job.objects.filter(pk=waiting.pk).update(state=Status.QUEUED)
        taken, waiting = waiting, taken


# Failures


@pytest.mark.parametrize("behaviour", ["crash", "error", "silent", "query"])
def test_a_check_that_fails_is_stored_with_its_reason_and_tried_at_the_next_start(
    here: nodes.Here, fake_engine: Callable[[str], list[str]], behaviour: str
) -> None:
    fake_engine(behaviour)
    worker.engines.close()
    nodes.register()
    checking.ask_if_due()
    worker.run(Job.objects.get().pk)
    node = Node.objects.get()
    found = shown(node)
    assert found.state == CheckState.FAILED
    assert found.problems[0].reason
    assert found.problems[0].advice
    assert next_job(LabBroker(WORKERS)) is None
    checking.ask_if_due()
    assert state_of(node) == CheckState.WAITING


def test_a_check_whose_worker_died_is_tried_once_more(here: nodes.Here) -> None:
    nodes.register()
    checking.ask_if_due()
    for state in (CheckState.WAITING, CheckState.FAILED):
        Job.objects.update(state=Status.RUNNING, heartbeat_at="2020-01-01T00:00:00Z")
        recovery.recover()
        assert state_of(Node.objects.get()) == state
    assert "stopped without finishing" in shown(Node.objects.get()).problems[0].reason


def test_a_check_does_not_touch_a_query_of_the_same_number(
    here: nodes.Here, member: User, answering: Callable[[SelfCheck], None]
) -> None:
    nodes.register()
    query = submit_query(member, QueryKind.PREDICT)
    Node.objects.update(id=query.pk)
    checking.ask(Node.objects.get())
    answering(made_check())
    worker.run(Job.objects.get(kind=JobKind.SELF_CHECK).pk)
    query.refresh_from_db()
    assert (query.progress, query.answer, query.status) == ("", None, "waiting")


def test_a_check_of_another_version_of_memorymark_counts_as_none(here: nodes.Here) -> None:
    node = checked_node()
    columns: list[object] = [{}, [], {"check": {"when": 1}, "problem": ""}, {"check": None}]
    for column in columns:
        Node.objects.update(self_check=column)
        assert state_of(node) == CheckState.NOT_CHECKED
    assert self_checks.of_the_lab("") == []


def test_a_node_that_is_off_does_not_count_as_work_that_nobody_takes(here: nodes.Here) -> None:
    nodes.register()
    checking.ask_if_due()
    assert lab_state.lab_state().lane_wait_seconds == {}


# What it is used for


def test_predictions_get_the_labs_checks_and_that_of_their_own_node_last(
    here: nodes.Here, member: User
) -> None:
    own = checked_node(made_check())
    other = made_check(when="2026-12-01T10:00:00+00:00")
    heartbeat = own.heartbeat_at
    stored = Stored(other).to_dict()
    Node.objects.create(
        name="lab-2", gpu_name="NVIDIA A10", heartbeat_at=heartbeat, self_check=stored
    )
    assert [one["when"][:10] for one in self_checks.of_the_lab("lab-1")] == [
        "2026-12-01",
        "2026-11-26",
    ]
    assert [one["when"][:10] for one in self_checks.of_the_lab("site")][-1] == "2026-12-01"
    for subject in (make_analysis(member), submit_query(member, QueryKind.PREDICT)):
        taken = lease.claim(subject.job.pk, here.name)
        assert taken is not None
        assert asked_of(taken).request["checks"] == self_checks.of_the_lab("lab-1")


def test_an_answer_from_before_a_check_is_not_reused(
    here: nodes.Here, answering: Callable[[SelfCheck], None]
) -> None:
    before = newest("a10"), newest("h100")
    nodes.register()
    checking.ask_if_due()
    answering(made_check())
    worker.run(Job.objects.get().pk)
    assert newest("a10") != before[0]
    assert newest("any") != before[0]
    assert newest("h100") == before[1]


# The page and the API


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(make_user("root", is_staff=True))
    return client


def page(client: Client) -> str:
    text: str = client.get(reverse("analyses:gpus")).content.decode()
    return " ".join(text.split())


def test_the_page_has_one_sentence_and_what_it_rests_on(here: nodes.Here, admin: Client) -> None:
    checked_node(made_check())
    html = page(admin)
    assert "Predictions on this node: memory within 0.3%, time within 6%." in html
    assert "+5.50%" in html
    assert "30.0 µs" in html
    assert "Check lab-1 again" in html


def test_the_page_says_what_does_not_run_and_what_to_do(here: nodes.Here, admin: Client) -> None:
    checked_node(made_check(problems=(PROBLEM,)))
    html = page(admin)
    assert "1 problem found." in html
    assert "The prediction of BERT: Install torch 2.13." in html
    assert "AttributeError: no __name__" in html


@pytest.mark.parametrize(
    ("state", "text"),
    [(Status.QUEUED, "as soon as it is free"), (Status.RUNNING, "Checking itself, up to 90 s")],
)
def test_the_page_says_that_a_check_is_on_its_way(
    here: nodes.Here, admin: Client, state: Status, text: str
) -> None:
    nodes.register()
    checking.ask_if_due()
    Job.objects.update(state=state)
    html = page(admin)
    assert text in html
    assert "Check lab-1 again" not in html


def test_the_page_says_that_a_check_failed_or_that_there_was_none(
    here: nodes.Here, admin: Client
) -> None:
    nodes.register()
    assert "Not checked" in page(admin)
    checked_node(problem="The engine crashed.")
    html = page(admin)
    assert "Self-check failed." in html
    assert "The engine crashed." in html
    assert "Look at the worker&#x27;s log" in html


def test_an_admin_lets_a_node_check_itself_again(here: nodes.Here, admin: Client) -> None:
    node = checked_node(made_check())
    address = reverse("analyses:check-node", args=[node.pk])
    for told in ("as soon as it is free", "is checking itself already"):
        answer = admin.post(address, follow=True)
        assert told in answer.content.decode()
    assert state_of(node) == CheckState.WAITING


def test_members_see_the_check_and_have_no_button(
    here: nodes.Here, client: Client, member: User
) -> None:
    checked_node(made_check())
    client.force_login(member)
    html = page(client)
    assert "memory within 0.3%" in html
    assert "Check lab-1 again" not in html


def test_the_api_has_the_check_of_each_node(here: nodes.Here, admin: Client) -> None:
    checked_node(made_check(problems=(PROBLEM,)))
    (node,) = admin.get("/api/v1/nodes/").json()["results"]
    found = node["self_check"]
    assert (found["state"], found["checked_at"][:10]) == ("problems", "2026-11-26")
    assert found["memory_error"] == pytest.approx(0.0029)
    assert found["time_error"] == pytest.approx(0.055)
    assert (found["context_bytes"], found["launch_seconds"]) == (None, 3e-5)
    assert found["problems"] == [vars(PROBLEM)]
    Node.objects.update(self_check=None)
    (node,) = admin.get("/api/v1/nodes/").json()["results"]
    assert (node["self_check"]["state"], node["self_check"]["sentence"]) == ("not checked", "")
