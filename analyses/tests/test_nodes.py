from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace

import pynvml
import pytest
from django.db import DatabaseError
from django.utils import timezone

from analyses import nodes, selectors
from analyses.models import Node


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert nodes.local_gpu() is None


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: f"gpu {index}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _gpu: "NVIDIA H200")
    memory = SimpleNamespace(total=150_754_820_096)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _gpu: memory)

    assert nodes.local_gpu() == nodes.LocalGpu("NVIDIA H200", 150_754_820_096)


def test_a_driver_that_fails_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_index: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lost)

    assert nodes.local_gpu() is None


def test_a_node_has_one_row_and_a_new_gpu_replaces_the_old(db: None) -> None:
    nodes.register(nodes.LocalGpu("NVIDIA A10", 1))
    nodes.register(None)

    node = Node.objects.get()
    assert (node.gpu_name, node.gpu_total_bytes) == ("", None)
    assert timezone.now() - node.heartbeat_at < timedelta(seconds=5)


def test_a_node_is_online_by_its_heartbeat(db: None) -> None:
    now = timezone.now()
    for name, age, gpu in (("a", 1, "A10"), ("b", 1, ""), ("c", 3600, "H100")):
        beat = now - timedelta(seconds=age)
        Node.objects.create(name=name, gpu_name=gpu, heartbeat_at=beat)

    assert [node.name for node in selectors.nodes_online()] == ["a", "b"]
    assert [node.name for node in selectors.nodes_with_gpu()] == ["a"]


def test_the_heartbeat_outlives_a_database_that_is_away(
    db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_gpu: object) -> None:
        raise DatabaseError("away")

    closed: list[bool] = []
    monkeypatch.setattr(nodes, "register", away)
    monkeypatch.setattr(nodes, "connection", SimpleNamespace(close=lambda: closed.append(True)))
    with caplog.at_level(logging.ERROR):
        nodes.beat(None)

    assert closed
    assert "trying again" in caplog.text
