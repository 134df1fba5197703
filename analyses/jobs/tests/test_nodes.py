from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pynvml
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from analyses.jobs import lab_state, nodes, queue
from analyses.models import Node
from engine.gpus.driver import LocalGpu, local_gpu

pytestmark = pytest.mark.database

A10 = LocalGpu("NVIDIA A10", "GPU-1", 24_146_608_128, "580.95")


@pytest.fixture
def gpu_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, as its driver reports them."""
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: f"GPU-{index}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _gpu: b"NVIDIA H200")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda gpu: gpu)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.95")
    memory = SimpleNamespace(total=150_754_820_096)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _gpu: memory)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> nodes.Here:
    node = nodes.Here("lab-1", A10, prediction_workers=2)
    monkeypatch.setattr(nodes, "here", lambda: node)
    return node


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert local_gpu() is None


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (None, "GPU-0"),
        ("1", "GPU-1"),
        ("1,0", "GPU-1"),
        ("GPU-abc", "GPU-abc"),
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
    ],
)
def test_a_node_has_the_first_visible_gpu(
    gpu_machine: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, uuid: str | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpu = local_gpu()

    expected = uuid and LocalGpu("NVIDIA H200", uuid, 150_754_820_096, "580.95")
    assert gpu == (expected or None)


def test_a_failing_driver_counts_as_no_gpu(
    gpu_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_index: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lost)
    assert local_gpu() is None


def test_a_node_reports_its_hardware_and_its_software(db: None, here: nodes.Here) -> None:
    nodes.register()

    node = Node.objects.get()
    assert (node.name, node.gpu_name, node.gpu_uuid) == ("lab-1", "NVIDIA A10", "GPU-1")
    assert (node.gpu_total_bytes, node.driver) == (24_146_608_128, "580.95")
    assert node.memory_bytes is not None
    assert node.memory_bytes > 2**30
    assert node.versions["torch"].startswith("2.")
    assert timezone.now() - node.heartbeat_at < timedelta(minutes=1)
    # Two predictions, a plan and a measurement; any free worker sends notifications.
    assert queue.workers_of(queue.WORKERS, here) == 4
    assert queue.workers_of(queue.INTERACTIVE, here) == 1


def test_a_start_ends_draining_and_clears_the_problem(db: None, here: nodes.Here) -> None:
    nodes.register()
    Node.objects.update(draining=True, problem="wrong key")
    nodes.beat()
    assert Node.objects.get().draining

    nodes.register()
    assert (Node.objects.get().draining, Node.objects.get().problem) == (False, "")


def test_a_node_whose_row_was_deleted_comes_back(db: None, here: nodes.Here) -> None:
    nodes.register()
    Node.objects.all().delete()
    nodes.beat()

    assert Node.objects.get().gpu_name == "NVIDIA A10"


def test_a_node_is_online_by_its_heartbeat(db: None) -> None:
    now = timezone.now()
    for name, age, gpu in (("a", 1, "A10"), ("b", 1, ""), ("c", 3600, "H100")):
        beat = now - timedelta(seconds=age)
        Node.objects.create(name=name, gpu_name=gpu, heartbeat_at=beat)

    assert [node.name for node in lab_state.nodes_online()] == ["a", "b"]
    assert [node.name for node in lab_state.nodes_with_gpu()] == ["a"]


def test_a_node_can_be_drained(
    db: None, here: nodes.Here, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.register()
    call_command("drain")

    assert Node.objects.get().draining
    assert "lab-1 has finished its work" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no node nowhere; known nodes: lab-1"):
        call_command("drain", "nowhere")
