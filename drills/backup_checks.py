"""Functions that the backup drill calls inside a lab, to compare what two labs store."""

from __future__ import annotations

import hashlib
import json
from threading import Thread
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from analyses.models import FINAL_STATUSES, Analysis
from memorymark_site.operations.backup import snapshot


def finals() -> dict[str, str]:
    """A digest of all stored data of each finished analysis, by its number."""
    ended = Analysis.objects.filter(status__in=FINAL_STATUSES).order_by("pk")
    return {f"{analysis.pk}": _digest(analysis) for analysis in ended}


def changed(before: dict[str, str]) -> list[str]:
    """The analyses of an earlier :func:`finals` that are missing or different now."""
    now = finals()
    return [number for number, digest in before.items() if now.get(number) != digest]


def savings_differ() -> bool:
    """Whether a recount of the savings gives different rows from those stored."""
    from analyses.models import CountedSavings
    from analyses.savings.aggregation import recounting

    before = list(CountedSavings.objects.order_by("pk").values())
    with recounting(Analysis.objects.all()):
        pass
    return before != list(CountedSavings.objects.order_by("pk").values())


def snapshot_holds() -> dict[str, int]:
    """Write while a backup is being read; returns the number of members seen at each point."""
    seen = {}
    with snapshot():
        seen["at first"] = User.objects.count()
        writer = Thread(target=_write)
        writer.start()
        writer.join()
        seen["after a write"] = User.objects.count()
    seen["afterwards"] = User.objects.count()
    return seen


def _write() -> None:
    try:
        User.objects.create(username=f"member-{User.objects.count()}")
    finally:
        connection.close()


def _digest(analysis: Analysis) -> str:
    rows: list[Any] = [list(Analysis.objects.filter(pk=analysis.pk).values())]
    rows += [list(analysis.trials.values()), list(analysis.log_lines.values())]
    text = json.dumps(rows, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
