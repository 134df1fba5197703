"""Whether this installation asks the Hugging Face hub; known without loading its libraries."""

from __future__ import annotations

from collections.abc import Mapping

SWITCH = "MEMORYMARK_HUB"
"""Environment variable; ``off`` keeps the engine from asking the hub for anything."""


def asks_hub(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment asks the hub."""
    return environment.get(SWITCH, "").strip().lower() not in ("off", "0", "false", "no")
