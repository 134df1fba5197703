"""The demo's node: an H100 as it was really measured, which is switched off.

Its numbers are those of the benchmark on that machine (``benchmarks/results``), in the form of a
self-check; launch time and rates were not measured there.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path

from analyses.gpus.self_checks import Stored
from analyses.models import Node
from engine.gpus.checked import read_self_check

NAME = "h100-1"
_CHECK = Path(__file__).with_name("self_check.json")


def add_node(last_day: date) -> None:
    """Add the node, unless it is there.

    Args:
        last_day: Last day of the demo's year; it was last online then.
    """
    check = read_self_check(_CHECK.read_text(encoding="utf-8"))
    identity, device = check.identity, check.device
    if device is None:
        raise ValueError(f"{_CHECK} has no device")
    off = datetime.combine(last_day, time(18), UTC)
    Node.objects.get_or_create(
        name=NAME,
        defaults={
            "gpu_name": identity.gpu,
            "gpu_total_bytes": device.total_bytes,
            "driver": identity.driver,
            "versions": {"torch": identity.torch, "transformers": identity.transformers},
            "started_at": off,
            "heartbeat_at": off,
            "self_check": Stored(check).to_dict(),
        },
    )
