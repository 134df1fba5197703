from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from analyses.api import nodes
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import make_analysis, make_user


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
    response = client.get(address)

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


def test_a_lab_without_gpus_says_so(client: Client, db: None) -> None:
    _node("laptop")
    body = client.get("/api/v1/health").json()
    assert (body["gpu_available"], body["gpu_name"], body["device"]) == (False, None, "cpu")


def test_health_fails_without_a_worker(client: Client, db: None) -> None:
    _node("long gone", 3600)
    response = client.get("/health")

    assert response.status_code == 503
    assert response.json()["problems"] == ["no worker is online; start one with: make worker"]


def test_health_fails_when_queued_jobs_are_not_claimed(client: Client, db: None) -> None:
    _node("lab-1")
    waiting = make_analysis(make_user())
    Analysis.objects.filter(pk=waiting.pk).update(queued_at=timezone.now() - timedelta(minutes=5))
    response = client.get("/health")

    assert response.status_code == 503
    assert "no worker takes waiting work" in response.json()["problems"][0]


def test_health_responds_while_the_database_is_down(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        def close(self) -> None:
            """Does nothing, in place of a connection."""

    def refuse() -> None:
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
    monkeypatch.setattr(nodes, "_lab", lambda: {"nodes": [1], "queue": {"stands_still": False}})
    client.cookies["sessionid"] = "a" * 32

    assert client.get("/health").status_code == 200


def test_health_cannot_be_posted_to(client: Client, db: None) -> None:
    assert client.post("/health").status_code == 405
