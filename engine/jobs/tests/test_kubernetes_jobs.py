from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.jobs.kubernetes import jobs_of, run_kubectl
from engine.jobs.record import Reporter

NODE = {
    "kind": "Node",
    "metadata": {
        "name": "gpu-1",
        "labels": {
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        },
    },
}


def pod(phase: str = "Succeeded", gpus: str | None = "2", **status: Any) -> dict[str, Any]:
    """A pod as the API of Kubernetes (core/v1) describes it, without most of its fields."""
    limits = {"cpu": "8", "memory": "64Gi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    ended = {"exitCode": 0, "finishedAt": "2026-11-01T14:00:00Z", "reason": "Completed"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "finetune-x7k",
            "namespace": "nlp",
            "uid": "2f9d1a60-7d1f-4a43-9c5e-0b8a3c3f7d11",
            "labels": {"owner": "grace"},
        },
        "spec": {
            "nodeName": "gpu-1",
            "containers": [{"name": "main", "resources": {"limits": limits}}, {"name": "log"}],
        },
        "status": {
            "phase": phase,
            "startTime": "2026-11-01T12:00:00Z",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }
        | status,
    }


def listed(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_a_pod_has_its_gpus_its_node_s_kind_of_gpu_and_its_hours() -> None:
    (job,) = jobs_of(listed(pod(), NODE), "owner")
    assert (job.reporter, job.user, job.name) == (Reporter.KUBERNETES, "grace", "finetune-x7k")
    assert (job.device_name, job.gpus) == ("NVIDIA-A100-SXM4-80GB", 2)
    assert job.device_total_bytes == 80 * 2**30
    assert job.ended_at - job.started_at == timedelta(hours=2)
    assert (job.is_running, job.used_bytes) == (False, None)


@pytest.mark.parametrize("label", ["", "team"])
def test_without_the_label_the_namespace_stands_for_the_user(label: str) -> None:
    assert jobs_of(listed(pod(), NODE), label)[0].user == "nlp"


def test_a_running_pod_ends_now() -> None:
    running = pod("Running", containerStatuses=[{"name": "main", "state": {"running": {}}}])
    (job,) = jobs_of(listed(running, NODE), "")
    assert job.is_running
    assert datetime.now(UTC) - job.ended_at < timedelta(minutes=5)


def test_a_pod_that_was_evicted_has_no_hours() -> None:
    (job,) = jobs_of(listed(pod("Failed", containerStatuses=[])), "")
    assert job.ended_at == job.started_at
    assert job.device_name == ""


def test_pods_without_gpus_or_a_start_are_left_out() -> None:
    waiting = pod("Pending")
    del waiting["status"]["startTime"]
    assert jobs_of(listed(pod(gpus=None), waiting, NODE), "") == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"items": [{}]}', listed({"kind": "Pod"})])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="kubectl"):
        jobs_of(text, "")


def test_kubectl_is_run_and_its_failure_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\ncat <<'EOF'\n{listed(pod(), NODE)}\nEOF\n")
    kubectl.chmod(0o755)
    assert len(jobs_of(run_kubectl(), "")) == 1
    kubectl.write_text("#!/bin/sh\necho 'no configuration has been provided' >&2\nexit 1\n")
    with pytest.raises(EngineError, match="no configuration has been provided"):
        run_kubectl()


def test_a_machine_without_kubectl_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="kubectl is not installed here"):
        run_kubectl()
