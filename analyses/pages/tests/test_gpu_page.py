"""The page of GPUs: the nodes of the lab and the catalogue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import services
from analyses.models import Node, Status
from analyses.tests.factories import make_analysis
from engine.core.errors import InvalidInput
from engine.gpus import GPUS


def _node(name: str, age_seconds: float = 1, **fields: object) -> Node:
    beat = timezone.now() - timedelta(seconds=age_seconds)
    return Node.objects.create(name=name, heartbeat_at=beat, **fields)


def test_the_gpu_page_requires_a_login(client: Client, db: None) -> None:
    assert client.get(reverse("analyses:gpus")).status_code == 302


def test_the_gpu_page_shows_each_node_and_its_work(page: Client, member: User) -> None:
    a10: dict[str, Any] = {
        "gpu_name": "NVIDIA A10",
        "gpu_total_bytes": 24_146_608_128,
        "driver": "580.95",
    }
    _node("lab-1", versions={"torch": "2.13.0"}, **a10)
    _node("laptop", 3600)
    _node("odd", key="another key's")
    _node("leaving", draining=True)
    running = make_analysis(member, Status.RUNNING, node="lab-1")
    text = page.get(reverse("analyses:gpus")).content.decode()

    assert "22.49 GiB, driver 580.95" in text
    assert "torch 2.13.0" in text
    assert f"#{running.pk} BERT base" in text
    for state in ("online", "offline", "problem", "draining"):
        assert f"status-{state}" in text
    assert "Its SECRET_KEY differs from the site" in text
    assert text.index("lab-1") < text.index("laptop")  # online nodes first


def test_the_gpu_page_shows_the_whole_catalogue(page: Client) -> None:
    text = page.get(reverse("analyses:gpus")).content.decode()
    assert all(gpu.display_name in text for gpu in GPUS.values())
    assert "No worker has started yet" in text


def test_htmx_only_gets_the_nodes(page: Client) -> None:
    _node("lab-1")
    text = page.get(reverse("analyses:gpus"), HTTP_HX_REQUEST="true").content.decode()
    assert "lab-1" in text
    assert "<html" not in text


def test_the_api_lists_the_nodes(page: Client, member: User) -> None:
    _node("lab-1", gpu_name="NVIDIA A10", gpu_total_bytes=24_146_608_128)
    running = make_analysis(member, Status.RUNNING, node="lab-1")
    (node,) = page.get("/api/v1/nodes/").json()["results"]

    assert (node["name"], node["gpu"]["name"]) == ("lab-1", "NVIDIA A10")
    assert node["analyses"] == [running.pk]


def test_with_several_kinds_of_gpu_one_must_be_chosen(member: User) -> None:
    for name, gpu in (("lab-1", "NVIDIA A10"), ("lab-2", "NVIDIA H200")):
        _node(name, gpu_name=gpu)
    with pytest.raises(InvalidInput, match="local:NVIDIA A10, local:NVIDIA H200"):
        services.submit(member, {"model": "bert", "gpu": "local"})
    with pytest.raises(InvalidInput, match="no node with this GPU"):
        services.submit(member, {"model": "bert", "gpu": "local:NVIDIA L4"})

    analysis = services.submit(member, {"model": "bert", "gpu": "local:NVIDIA H200"})
    assert (analysis.gpu, analysis.measured_gpu) == ("local", "NVIDIA H200")
    assert analysis.request["gpu"] == "local"


def test_the_catalogue_is_folded_by_family_but_for_what_the_lab_added(page: Client) -> None:
    html = page.get(reverse("analyses:gpus")).content.decode()
    families = {gpu.family for gpu in GPUS.values()}
    assert html.count('<details class="family">') == len(families)
    assert '<details class="family" open>' not in html
