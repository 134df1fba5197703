"""What an analysis runs with: kept with it, since a node is upgraded and the answer stays."""

from __future__ import annotations

from functools import cache

from analyses import nodes
from engine.fingerprint import fingerprint


@cache
def engine_version() -> str:
    """The fingerprint of the engine and the libraries it traces; read once in a process's life."""
    return fingerprint()


def environment_here() -> dict[str, str]:
    """This node's name and the versions that an analysis taken now runs with."""
    return {"node": nodes.here().name, "engine": engine_version(), **nodes.versions()}
