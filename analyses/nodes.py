"""This machine as a node of the lab: its GPU and its signs of life."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass

import pynvml
from django import db
from django.db import connection
from django.utils import timezone

from analyses import recovery
from analyses.models import Node

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True)
class LocalGpu:
    """The first GPU of this machine."""

    name: str
    total_bytes: int


def local_gpu() -> LocalGpu | None:
    """What the NVIDIA driver says of this machine's first GPU; ``None`` if there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver, or no GPU
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        name = pynvml.nvmlDeviceGetName(device)
        return LocalGpu(str(name), int(pynvml.nvmlDeviceGetMemoryInfo(device).total))
    except pynvml.NVMLError:
        logger.exception("the NVIDIA driver is there but does not describe its GPU")
        return None
    finally:
        pynvml.nvmlShutdown()


def register(gpu: LocalGpu | None) -> None:
    """Write this node's row, which is also its sign of life."""
    Node.objects.update_or_create(
        name=socket.gethostname(),
        defaults={
            "gpu_name": gpu.name if gpu else "",
            "gpu_total_bytes": gpu.total_bytes if gpu else None,
            "heartbeat_at": timezone.now(),
        },
    )


def start_heartbeat() -> threading.Thread:
    """Register this node and keep its heartbeat, for as long as this worker process lives."""
    thread = threading.Thread(target=_beat_for_ever, name="node-heartbeat", daemon=True)
    thread.start()
    return thread


def _beat_for_ever() -> None:
    gpu = local_gpu()
    pause = threading.Event()
    while True:
        beat(gpu)
        pause.wait(HEARTBEAT_SECONDS)


def beat(gpu: LocalGpu | None) -> None:
    """One sign of life, and a look at what other workers left behind."""
    try:
        register(gpu)
        recovery.fail_stale()
        recovery.requeue_lost()
    except db.Error:
        logger.exception("no heartbeat: the database did not take it; trying again")
        connection.close()  # a broken one must not be used for the next try
