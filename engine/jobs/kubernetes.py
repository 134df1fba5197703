"""Pods with GPUs, as ``kubectl get pods,nodes --all-namespaces --output json`` lists them.

A cluster keeps pods for a while after they have ended, and knows neither their memory nor who
started them. The name and memory of a GPU are the labels that NVIDIA's feature discovery gives a
node, as its GPU operator does.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..core.errors import EngineError, InvalidInput
from .record import JobRecord, Reporter

COMMAND = ("kubectl", "get", "pods,nodes", "--all-namespaces", "--output", "json")
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_PRODUCT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
_MIB = 2**20
_TIMEOUT_SECONDS = 120


def run_kubectl() -> str:
    """The output of ``kubectl`` here.

    Raises:
        EngineError: It is not installed, or failed.
    """
    try:
        done = subprocess.run(
            COMMAND, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise EngineError("kubectl is not installed here; name a file with its output") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"kubectl did not answer within {_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        raise EngineError(f"kubectl failed: {done.stderr.strip()[:500]}")
    return done.stdout


def jobs_of(text: str, user_label: str) -> list[JobRecord]:
    """The pods with GPUs that have started.

    Args:
        text: Output of :data:`COMMAND`.
        user_label: Label of a pod that names its user; where it is empty, or a pod lacks it, the
            namespace stands for the user.

    Raises:
        InvalidInput: It is other text.
    """
    try:
        items = json.loads(text)["items"]
        labels = {
            one["metadata"]["name"]: one["metadata"].get("labels", {})
            for one in items
            if one["kind"] == "Node"
        }
        pods = [one for one in items if one["kind"] == "Pod"]
        return list(_jobs(pods, labels, user_label))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"it is not what {' '.join(COMMAND)} writes: {error!r}"
        raise InvalidInput({"source": told}) from error


def _jobs(
    pods: list[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]], user_label: str
) -> Iterator[JobRecord]:
    now = datetime.now(UTC)
    for pod in pods:
        about, status, gpus = pod["metadata"], pod["status"], _gpu_count(pod["spec"])
        if not (gpus and status.get("startTime")):
            continue
        node = labels.get(pod["spec"].get("nodeName", ""), {})
        memory = node.get(_MEMORY, "")
        is_running = status["phase"] not in ("Succeeded", "Failed")
        yield JobRecord(
            reporter=Reporter.KUBERNETES,
            id=about["uid"],
            user=about.get("labels", {}).get(user_label) or about["namespace"],
            device_name=node.get(_PRODUCT, ""),
            gpus=gpus,
            started_at=datetime.fromisoformat(status["startTime"]),
            ended_at=now if is_running else _ended_at(status),
            is_running=is_running,
            device_total_bytes=int(memory) * _MIB if memory.isdigit() else None,
            name=about["name"],
            hosts=(about["name"],),
        )


def _gpu_count(spec: Mapping[str, Any]) -> int:
    limits = [one.get("resources", {}).get("limits", {}) for one in spec["containers"]]
    return sum(int(limit.get(name, 0)) for limit in limits for name in _GPUS)


def _ended_at(status: Mapping[str, Any]) -> datetime:
    """The end of a pod's last container; its start where none is known, as after an eviction."""
    ended = [
        one["state"]["terminated"]["finishedAt"]
        for one in status.get("containerStatuses", [])
        if "terminated" in one["state"]
    ]
    return max(map(datetime.fromisoformat, ended or [status["startTime"]]))
