"""Fingerprints of the ``SECRET_KEY`` of processes, which do not reveal it.

The site decides: it compares what a node announces, and what a job was queued with, to its own.
"""

from __future__ import annotations

from functools import cache

from django.db.models import Q
from django.utils.crypto import salted_hmac

from analyses.models import Node

WRONG_KEY = "its SECRET_KEY differs from the site's. Set the same key, or share MEMORYMARK_DATA_DIR"


@cache
def key_fingerprint() -> str:
    """An HMAC of a known text with this process's ``SECRET_KEY``."""
    return salted_hmac("analyses.jobs.queue", "key").hexdigest()[:16]


def has_our_key() -> Q:
    """The nodes with this process's key, and those of earlier versions, which announce none."""
    return Q(key__in=("", key_fingerprint()))


def problem_of(node: Node) -> str:
    """Why a node cannot be counted on; empty if it can."""
    return node.problem if node.key in ("", key_fingerprint()) else WRONG_KEY
