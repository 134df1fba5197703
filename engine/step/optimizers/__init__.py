"""The optimizers people train with, each as its usual trainer sets it up on a GPU."""

from __future__ import annotations

from .bitsandbytes_adamw import paged_caveats
from .in_backward import updating_in_backward
from .making import make_optimizer
from .muon import muon_with_adamw
from .on_host import OnHost
from .refreshes import refresh_caveats

__all__ = [
    "OnHost",
    "make_optimizer",
    "muon_with_adamw",
    "paged_caveats",
    "refresh_caveats",
    "updating_in_backward",
]
