"""The workload: what is trained and how, everything but the batch size and the GPU.

Its fields stand by theme, one module each; :class:`Workload` has them all and checks them.
"""

from .training import MAX_ACCUMULATION
from .workload import OWN_CONFIG, Workload

__all__ = ["MAX_ACCUMULATION", "OWN_CONFIG", "Workload"]
