"""The lab's site from Python: :class:`Lab` does what its REST API can.

It needs and loads nothing but the standard library. ``docs/client.md`` has examples.
"""

from .errors import (
    Changed,
    LabError,
    Misconfigured,
    NotAllowed,
    NotFinished,
    NotFound,
    Refused,
    Unavailable,
)
from .imported import ImportedJobs
from .lab import Analysis, Lab
from .outbox import Delivery

__all__ = [
    "Analysis",
    "Changed",
    "Delivery",
    "ImportedJobs",
    "Lab",
    "LabError",
    "Misconfigured",
    "NotAllowed",
    "NotFinished",
    "NotFound",
    "Refused",
    "Unavailable",
]
