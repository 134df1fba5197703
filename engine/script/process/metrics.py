"""Stand-ins for metrics of the ``evaluate`` package, whose code is a file of the Hub.

A metric says how well a model does, and takes no memory of the GPU. So a script is traced without
it where the file is not on this machine.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import wraps
from typing import Any

from ...versions.patches import patch_for_good
from ..on_import import when_imported
from .causes import wants_network


class UnknownMetric:
    """Takes what a metric takes, and computes 0.0 for whatever is asked."""

    def add(self, *_: Any, **__: Any) -> None:
        """Take a prediction."""

    def add_batch(self, *_: Any, **__: Any) -> None:
        """Take the predictions of a batch."""

    def compute(self, *_: Any, **__: Any) -> defaultdict[str, float]:
        """The results, by name."""
        return defaultdict(float)


def go_without_metrics() -> None:
    """Let ``evaluate.load`` never fail for want of a download; for a process that runs a script."""
    when_imported({"evaluate": _replace_load})


def _replace_load() -> None:
    evaluate: Any = sys.modules["evaluate"]
    load = evaluate.load

    @wraps(load)
    def load_or_go_without(*args: Any, **kwargs: Any) -> Any:
        try:
            return load(*args, **kwargs)
        except (OSError, ImportError) as error:
            if not wants_network(error):
                raise
            return UnknownMetric()

    patch_for_good(
        evaluate,
        "load",
        load_or_go_without,
        why="metrics are files of the Hub, and take no memory",
    )
