"""This machine as a node of the lab: its GPU, its software and its heartbeat."""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import psutil
from django.conf import settings
from django.db.models.functions import Now

from analyses.jobs import environments
from analyses.jobs.keys import key_fingerprint
from analyses.models import Node
from engine.gpus.checked import Identity
from engine.gpus.driver import LocalGpu, local_gpu
from engine.prediction.timing.speed_model import STEP_PREDICTOR, step_predictor
from engine.traces.fingerprint import fingerprint
from engine.versions import software

_REPORTED_PACKAGES = ("torch", "transformers", "peft", "django-q2")


@dataclass(frozen=True)
class Here:
    """This node as its processes see it."""

    name: str
    gpu: LocalGpu | None
    prediction_workers: int

    @property
    def gpu_name(self) -> str:
        """Empty without a GPU."""
        return self.gpu.name if self.gpu else ""

    @property
    def gpu_uuid(self) -> str:
        """Empty without a GPU."""
        return self.gpu.uuid if self.gpu else ""


@cache
def here() -> Here:
    """This node; the driver is queried once per process and its children."""
    name = settings.NODE_NAME or socket.gethostname()
    return Here(name, local_gpu(), settings.PREDICTION_WORKERS)


def register() -> None:
    """Write this node's row at the start of its processes: hardware and software."""
    node = here()
    Node.objects.update_or_create(
        name=node.name,
        defaults={
            "gpu_name": node.gpu_name,
            "gpu_uuid": node.gpu_uuid,
            "gpu_total_bytes": node.gpu.total_bytes if node.gpu else None,
            "driver": node.gpu.driver if node.gpu else "",
            "memory_bytes": psutil.virtual_memory().total,
            "versions": versions(),
            "environments": _environments(),
            "started_at": Now(),
            "heartbeat_at": Now(),
            "draining": False,
            "key": key_fingerprint(),
            "problem": "",
        },
    )


def identity() -> Identity:
    """The GPU, driver and versions that a self-check of this node is valid for."""
    return Identity.of(here().gpu, software.installed())


def beat() -> None:
    """Set the heartbeat; a deleted row is written again."""
    row = Node.objects.filter(name=here().name)
    if not row.update(heartbeat_at=Now(), environments=_environments()):
        register()


def _environments() -> dict[str, dict[str, str]]:
    return {one.name: dict(one.versions) for one in environments.here()}


def versions() -> dict[str, str]:
    """Versions that analyses run with here, read from installed packages without loading them."""
    found = {"python": platform.python_version()}
    for package in _REPORTED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@cache
def engine_version() -> str:
    """The fingerprint of the engine and the libraries it traces, computed once per process."""
    return fingerprint()


def environment_here(wanted: str = environments.OWN) -> dict[str, str]:
    """This node's name and the versions that an analysis claimed now runs with.

    Args:
        wanted: The software of its workload.
    """
    found = environments.find(wanted)
    others = found.versions if found and found.name else {}
    fixed = {"node": here().name, "engine": engine_version(), STEP_PREDICTOR: step_predictor()}
    return {**fixed, **versions(), **others}
