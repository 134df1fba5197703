"""Software of the lab: what nodes offer, which jobs they take, and what the engine runs in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from analyses import queries, services
from analyses.jobs import environments, lab_state, nodes, worker
from analyses.jobs.engine_process import Engines
from analyses.jobs.queue import WORKERS, LabBroker
from analyses.jobs.tests.queueing import next_job
from analyses.models import Analysis, Node, Status
from analyses.pages.analysis.views import LONG_WAIT_SECONDS, state_of
from analyses.tests.factories import make_analysis, make_request
from engine.core.errors import EngineError, InvalidInput
from engine.versions import software
from engine.versions.environments import Environment

pytestmark = pytest.mark.database

OLD = "transformers=4.51.3"
VERSIONS = {"transformers": "4.51.3", "torch": "2.13.0+cpu"}

Behave = Callable[[str], list[str]]


@pytest.fixture
def old(settings: Settings, tmp_path: Path) -> Environment:
    """An environment of this node whose Python is the one that runs the tests."""
    settings.ENVIRONMENTS_DIR = tmp_path / "environments"
    home = settings.ENVIRONMENTS_DIR / OLD
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    (home / "versions.json").write_text(json.dumps(VERSIONS))
    return Environment(OLD, home / "bin" / "python", VERSIONS)


@pytest.fixture
def online(db: None, old: Environment) -> Node:
    return Node.objects.create(
        name="lab-1",
        gpu_name="NVIDIA A10",
        heartbeat_at=timezone.now(),
        versions={"transformers": "5.23.0", "torch": "2.13.0+cpu"},
        environments={OLD: VERSIONS},
    )


def test_software_is_found_on_this_node(old: Environment) -> None:
    own = environments.find("")
    assert own is not None
    assert own.name == environments.OWN
    assert environments.find(f"torch={software.installed()['torch']}") == own
    assert environments.find(OLD) == old
    assert environments.find("transformers=4.51.3,torch=2.13.0") == old
    assert environments.find("transformers=4.44.2") is None


@pytest.mark.django_db
def test_a_node_announces_environments_with_its_heartbeat(
    settings: Settings, old: Environment, tmp_path: Path
) -> None:
    offered = settings.ENVIRONMENTS_DIR
    settings.ENVIRONMENTS_DIR = tmp_path / "none"
    nodes.register()
    assert Node.objects.get().environments == {}
    settings.ENVIRONMENTS_DIR = offered
    nodes.beat()
    assert Node.objects.get().environments == {OLD: VERSIONS}


def test_the_lab_offers_what_nodes_online_offer(online: Node) -> None:
    assert set(lab_state.software_offered()) == {"", OLD}
    assert lab_state.software_offered("NVIDIA H100") == {}
    Node.objects.update(heartbeat_at=timezone.now() - timedelta(days=1))
    assert lab_state.software_offered() == {}


def test_software_that_no_node_offers_is_refused(member: User, online: Node) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.submit(member, make_request(software="transformers=4.44.2"))
    assert OLD in refused.value.fields["software"]
    with pytest.raises(InvalidInput, match="environment add"):
        queries.predictable(make_request(software="transformers=4.44.2"))
    # The node's own software has these versions.
    assert services.submit(member, make_request(software="torch=2.13.0")).status == Status.QUEUED


def test_an_analysis_stores_its_software_and_its_job_waits_for_it(
    member: User, online: Node, here: nodes.Here, settings: Settings
) -> None:
    analysis = services.submit(member, make_request(software=OLD))
    assert (analysis.software, analysis.job.software) == (OLD, OLD)
    offered, settings.ENVIRONMENTS_DIR = settings.ENVIRONMENTS_DIR, Path("/nowhere")
    assert next_job(LabBroker(WORKERS)) is None
    plain = services.submit(member, make_request(current_batch_size=8))
    assert next_job(LabBroker(WORKERS)) == plain.job
    settings.ENVIRONMENTS_DIR = offered
    assert next_job(LabBroker(WORKERS)) == analysis.job


def test_a_long_wait_names_the_software(member: User, online: Node) -> None:
    analysis = services.submit(member, make_request(software=OLD))
    late = analysis.queued_at + timedelta(seconds=LONG_WAIT_SECONDS + 1)
    assert state_of(analysis, late).hint.startswith("No worker with transformers 4.51.3 has picked")


def test_other_software_is_another_answer(member: User, online: Node, fake_engine: Behave) -> None:
    fake_engine("success")
    plain = services.submit(member, make_request())
    worker.run(plain.job.pk)
    assert services.submit(member, make_request()).answered_from == plain
    old = services.submit(member, make_request(software=OLD))
    assert old.answered_from is None
    assert old.workload_key != plain.workload_key


def test_the_engine_runs_in_the_environment_and_its_versions_are_recorded(
    member: User, online: Node, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("success")
    taken: list[str] = []
    take = Engines.take

    def noting(engines: Engines, environment: Environment) -> object:
        taken.append(environment.name)
        return take(engines, environment)

    monkeypatch.setattr(Engines, "take", noting)
    analysis = services.submit(member, make_request(software=OLD))
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED
    assert taken == [OLD]
    assert analysis.environment["transformers"] == "4.51.3"


def test_an_environment_removed_meanwhile_fails_in_words(
    member: User, online: Node, fake_engine: Behave, settings: Settings
) -> None:
    fake_engine("success")
    analysis = services.submit(member, make_request(software=OLD))
    settings.ENVIRONMENTS_DIR = Path("/nowhere")
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert analysis.status == Status.FAILED
    assert analysis.failure_reason == f"This node no longer offers {OLD}."


def test_an_engine_of_each_software_is_kept_warm(old: Environment, fake_engine: Behave) -> None:
    fake_engine("success")
    engines = Engines()
    try:
        engines.prepare()
        engine = engines.take(old)
        assert engine.software == OLD
        engines.give_back(engine)
        assert engines.take(old) is engine
        another = Environment("torch=2.6.0", old.python, {})
        engines.give_back(engine)
        engines.give_back(engines.take(another))
        assert engine.returncode is not None  # one with other software is kept, and the own one
        assert set(engines._warm) == {environments.OWN, another.name}
    finally:
        engines.close()


def test_the_form_offers_the_labs_software(client: Client, member: User, online: Node) -> None:
    client.force_login(member)
    page = client.get(reverse("analyses:new")).content.decode()
    assert "The lab&#x27;s own: transformers 5.23.0, torch 2.13.0+cpu" in page
    assert f'<option value="{OLD}">transformers 4.51.3</option>' in page


def test_the_history_is_filtered_by_software(client: Client, member: User, online: Node) -> None:
    plain = services.submit(member, make_request())
    old = services.submit(member, make_request(software=OLD))
    client.force_login(member)
    shown = client.get(reverse("analyses:list"), {"software": OLD}).content.decode()
    assert reverse("analyses:detail", args=[old.pk]) in shown
    assert reverse("analyses:detail", args=[plain.pk]) not in shown


def test_the_api_knows_software(api: APIClient, online: Node) -> None:
    sent = api.post("/api/v1/analyses/", make_request(software=OLD), format="json")
    assert sent.status_code == 201, sent.content
    assert sent.json()["software"] == OLD
    (listed,) = api.get("/api/v1/analyses/", {"software": OLD}).json()["results"]
    assert listed["id"] == sent.json()["id"]
    (node,) = api.get("/api/v1/nodes/").json()["results"]
    assert node["environments"] == {OLD: VERSIONS}


def test_two_analyses_are_compared_by_their_software(
    client: Client, member: User, online: Node
) -> None:
    made = [make_analysis(member, request=make_request(software=one)) for one in ("", OLD)]
    client.force_login(member)
    address = reverse("analyses:compare") + f"?ids={made[0].pk},{made[1].pk}"
    page = client.get(address).content.decode()
    assert OLD in page


def test_the_command_makes_shows_and_removes_environments(
    old: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(folder: Path, wanted: dict[str, str]) -> Environment:
        if wanted == {"torch": "0.1"}:
            raise EngineError("the environment cannot be made: no such version")
        return Environment(software.as_text(wanted), old.python, VERSIONS)

    monkeypatch.setattr("engine.versions.environments.make", make)

    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("environment", *arguments, stdout=out)
        return out.getvalue()

    assert said("add", "--transformers", "4.51.3", "--torch", "2.6.0") == (
        "Made transformers=4.51.3,torch=2.6.0: transformers 4.51.3, torch 2.13.0+cpu.\n"
    )
    assert f"{OLD}: transformers 4.51.3" in said("list")
    assert said("remove", OLD) == f"Removed {OLD}.\n"
    assert not old.python.exists()
    for wrong in (
        ["remove", OLD],
        ["add"],
        ["add", "--torch", "newest"],
        ["add", "--torch", "0.1"],
    ):
        with pytest.raises(CommandError):
            said(*wrong)


def test_versions_are_compared_from_the_form(client: Client, member: User, online: Node) -> None:
    client.force_login(member)
    new, own = reverse("analyses:new"), "transformers=5.23.0,torch=2.13.0"
    html = client.get(new).content.decode()
    assert f'name="compared_software" value="{own}"' in html
    typed = {"ask": "compare", "model": "bert", "gpu": "a10", "current_batch_size": "16"}
    typed |= {"precision": "fp32", "compared_batches": "", "batch_to_check": "16"}
    sent = client.post(new, typed | {"compared_software": [own, OLD]})
    assert sent.status_code == 302
    assert {one.software for one in Analysis.objects.all()} == {own, OLD}


def test_a_lab_without_environments_offers_no_versions_to_compare(
    client: Client, member: User
) -> None:
    client.force_login(member)
    assert 'name="compared_software"' not in client.get(reverse("analyses:new")).content.decode()
