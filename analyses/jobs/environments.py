"""The software that this node can run the engine with: its own, and environments made with pip."""

from __future__ import annotations

import sys
from pathlib import Path

from django.conf import settings

from engine.versions import software
from engine.versions.environments import Environment, offered

OWN = ""
"""The name of the node's own software."""


def here() -> list[Environment]:
    """The environments made on this node; not its own software."""
    return offered(folder())


def folder() -> Path:
    """The folder that environments are created in."""
    return Path(settings.ENVIRONMENTS_DIR)


def find(wanted: str) -> Environment | None:
    """The environment on this node for a workload with this software; ``None`` without one.

    Args:
        wanted: Versions, as a workload has them.
    """
    pins = software.parse(wanted)
    own = Environment(OWN, Path(sys.executable), software.installed())
    return next((one for one in [own, *here()] if software.is_offered(pins, one.versions)), None)
