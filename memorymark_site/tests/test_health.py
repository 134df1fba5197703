from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from analyses.api import nodes
from analyses.jobs.keys import WRONG_KEY, key_fingerprint
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import make_analysis, make_user
from memorymark_site.accounts.models import ApiToken
from memorymark_site.operations import data_folder

pytestmark = pytest.mark.database


def _node(name: str, seconds_old: float = 1, **fields: object) -> None:
    beat = timezone.now() - timedelta(seconds=seconds_old)
    Node.objects.create(name=name, heartbeat_at=beat, **fields)


@pytest.mark.parametrize("address", ["/health", "/api/v1/health"])
def test_health_is_ok_with_a_worker(client: Client, db: None, address: str) -> None:
    a10: dict[str, Any] = {
        "gpu_name": "NVIDIA A10",
        "gpu_total_bytes": 24_146_608_128,
        "driver": "580.95",
    }
    _node("lab-1", versions={"torch": "2.13.0"}, problem="wrong key", **a10)
    _node("laptop")
    _node("long gone", 3600, gpu_name="NVIDIA H100")
    owner = make_user()
    make_analysis(owner)
    make_analysis(owner)
    make_analysis(owner, Status.RUNNING)
    token = ApiToken.objects.create(user=owner)[1]
    response = client.get(address, headers={"Authorization": f"Token {token}"})

    assert response.status_code == 200
    body = response.json()
    assert (body["status"], body["database"], body["problems"]) == ("ok", "ok", [])
    assert (body["queue"]["waiting"], body["queue"]["running"]) == (2, 1)
    assert body["queue"]["oldest_waiting_seconds"] >= 0
    assert [node["name"] for node in body["nodes"]] == ["lab-1", "laptop"]
    gpu = {"name": "NVIDIA A10", "total_bytes": 24_146_608_128, "driver": "580.95"}
    assert body["nodes"][0]["gpu"] == gpu
    assert body["nodes"][0]["versions"] == {"torch": "2.13.0"}
    assert body["nodes"][0]["problem"] == "wrong key"
    assert body["nodes_with_gpu"] == 1
    first = {
        "gpu_available": True,
        "gpu_name": "NVIDIA A10",
        "gpu_total_bytes": 24_146_608_128,
        "device": "cuda",
    }
    assert body.items() >= first.items()
    assert body["time"]
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize("address", ["/health", "/api/v1/health"])
@pytest.mark.parametrize("given", ["", "Token mm_wrong", "Token", "Bearer wrong", "Bearer "])
def test_health_names_no_machine_to_strangers(
    client: Client, db: None, address: str, given: str
) -> None:
    _node("lab-1", versions={"torch": "2.13.0"}, gpu_name="NVIDIA A10", gpu_total_bytes=24_000)
    headers = {"Authorization": given} if given else {}
    response = client.get(address, headers=headers)

    body = response.json()
    assert (response.status_code, body["status"]) == (200, "ok")
    assert (body["nodes_online"], body["nodes_with_gpu"], body["gpu_available"]) == (1, 1, True)
    for told in ("lab-1", "torch", "A10", "24000", "heartbeat"):
        assert told not in response.content.decode()


def test_health_names_the_machines_to_what_watches(client: Client, db: None, settings: Any) -> None:
    settings.METRICS_TOKEN = "m" * 30
    _node("lab-1")
    body = client.get("/health", headers={"Authorization": f"Bearer {'m' * 30}"}).json()
    assert [node["name"] for node in body["nodes"]] == ["lab-1"]


def test_a_lab_without_gpus_says_so(client: Client, db: None) -> None:
    _node("laptop")
    token = ApiToken.objects.create(user=make_user())[1]
    body = client.get("/api/v1/health", headers={"Authorization": f"Token {token}"}).json()
    assert (body["gpu_available"], body["gpu_name"], body["device"]) == (False, None, "cpu")


def test_health_fails_without_a_worker(client: Client, db: None) -> None:
    _node("long gone", 3600)
    response = client.get("/health")

    assert response.status_code == 503
    assert response.json()["problems"] == ["no worker is online; start one with: make worker"]


def test_health_fails_where_nothing_can_be_written(
    client: Client, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _node("laptop")
    settings.DATA_DIR = Path("/proc")  # which takes no files, whoever asks
    refused = client.get("/health")
    assert refused.status_code == 503
    (problem,) = refused.json()["problems"]
    assert problem.startswith("the data folder cannot be written to: ")
    assert "/proc" not in problem  # strangers read it
    monkeypatch.setattr(data_folder, "_new_file", partial(Path("/dev/full").open, "wb"))
    full = client.get("/api/v1/health")
    assert full.status_code == 503
    assert full.json()["problems"] == [
        "the data folder cannot be written to: No space left on device"
    ]


def test_health_leaves_nothing_in_the_data_folder(
    client: Client, db: None, settings: Any, tmp_path: Path
) -> None:
    _node("laptop")
    settings.DATA_DIR = tmp_path
    assert client.get("/health").status_code == 200
    assert list(tmp_path.iterdir()) == []


def test_a_node_with_another_key_is_named_and_does_not_count(client: Client, db: None) -> None:
    _node("good", key=key_fingerprint())
    _node("odd", key="another key's", gpu_name="NVIDIA A10")
    token = {"Authorization": f"Token {ApiToken.objects.create(user=make_user())[1]}"}
    both = client.get("/health", headers=token)
    assert both.status_code == 200
    assert {node["name"]: node["problem"] for node in both.json()["nodes"]} == {
        "good": "",
        "odd": WRONG_KEY,
    }
    counts = ("nodes_online", "nodes_with_wrong_key", "nodes_with_gpu")
    assert [both.json()[count] for count in counts] == [1, 1, 0]

    Node.objects.filter(name="good").delete()
    problem = "no worker with the site's SECRET_KEY is online, but one with another is"
    for headers, said in ((token, f"{problem}: odd"), ({}, problem)):
        alone = client.get("/health", headers=headers)
        assert (alone.status_code, alone.json()["problems"]) == (503, [said])


def test_health_fails_when_queued_jobs_are_not_claimed(client: Client, db: None) -> None:
    _node("lab-1")
    waiting = make_analysis(make_user())
    with CaptureQueriesContext(connection) as before:
        assert client.get("/health").status_code == 200
    Analysis.objects.filter(pk=waiting.pk).update(queued_at=timezone.now() - timedelta(minutes=5))
    with CaptureQueriesContext(connection) as after:
        response = client.get("/health")

    assert len(after) == len(before)

    assert response.status_code == 503
    assert "no worker takes waiting work" in response.json()["problems"][0]


def test_health_responds_while_the_database_is_down(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        vendor = "sqlite"

        def close(self) -> None:
            """Does nothing, in place of a connection."""

    def refuse(**_kwargs: bool) -> None:
        raise OperationalError("could not connect to postgres://user:secret@host")

    monkeypatch.setattr(nodes, "_lab", refuse)
    monkeypatch.setattr(nodes, "connection", Down())
    client.cookies["sessionid"] = "a" * 32  # must not be queried
    response = client.get("/health")

    assert response.status_code == 503
    assert response.json()["database"] == "down"
    assert b"secret" not in response.content


def test_health_reads_no_session(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``db`` mark: any query would fail this test."""
    lab = {"nodes_online": 1, "queue": {"stands_still": False}}
    monkeypatch.setattr(nodes, "_lab", lambda **_kwargs: lab)
    monkeypatch.setattr(nodes, "need_response", lambda _connection: None)
    client.cookies["sessionid"] = "a" * 32

    assert client.get("/health").status_code == 200


def test_health_cannot_be_posted_to(client: Client, db: None) -> None:
    assert client.post("/health").status_code == 405
