"""Totals that are kept in this process until counted savings change.

Adding up a large lab reads a row per workload, and most requests come without a change in between.
Each process keeps its own; the database only says whether they still hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from random import SystemRandom
from threading import Lock
from typing import TypeVar

from django.db.models import Count, Sum

from analyses.models import SavingsChange

T = TypeVar("T")

Version = tuple[int, int]
"""Version of counted savings: another one after each change."""

_MAX_KEPT = 64
_CHANGES = 1000
"""Older changes are deleted down to this number; at most twice as many are stored."""

_totals: OrderedDict[Hashable, object] = OrderedDict()
_lock = Lock()
_random = SystemRandom()


def version() -> Version:
    """The version of the lab's counted savings; one query."""
    found = SavingsChange.objects.aggregate(count=Count("pk"), marks=Sum("mark"))
    return found["count"], int(found["marks"] or 0)


def forget() -> None:
    """Make this version another one, once the transaction commits."""
    change = SavingsChange.objects.create(mark=_random.getrandbits(40))
    if change.pk % _CHANGES == 0:
        SavingsChange.objects.filter(pk__lt=change.pk - _CHANGES).delete()


def kept(key: Hashable, add_up: Callable[[], T]) -> T:
    """Return the total cached for this key, or add it up.

    Args:
        key: All that it depends on, including the version.
        add_up: Computes the total, which is shared and must not be changed.
    """
    with _lock:
        if key in _totals:
            _totals.move_to_end(key)
            return _totals[key]  # type: ignore[return-value]  # what add_up returned for this key
    found = add_up()
    with _lock:
        _totals[key] = found
        while len(_totals) > _MAX_KEPT:
            _totals.popitem(last=False)
    return found
