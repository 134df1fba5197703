"""The lab's site, asked from Python: :class:`Lab` does what its REST API can.

Only the standard library is needed, and neither torch nor transformers is loaded.
``docs/client.md`` has examples.
"""

from engine.client.errors import (
    Changed,
    LabError,
    Misconfigured,
    NotAllowed,
    NotFinished,
    NotFound,
    Refused,
    Unavailable,
)
from engine.client.lab import Analysis, Lab
from engine.client.outbox import Delivery

__all__ = [
    "Analysis",
    "Changed",
    "Delivery",
    "Lab",
    "LabError",
    "Misconfigured",
    "NotAllowed",
    "NotFinished",
    "NotFound",
    "Refused",
    "Unavailable",
]
