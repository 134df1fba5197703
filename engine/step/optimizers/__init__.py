"""The optimizers people train with, each as its usual trainer sets it up on a GPU."""

from __future__ import annotations

from .making import make_optimizer

__all__ = ["make_optimizer"]
