"""Alarms that need an operator at once, and e-mails to the admins about them.

The limits are those of ``docs/monitoring/alerts.yml``, for labs without Prometheus.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from time import time

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.db.models import Min

from analyses.jobs.lab_state import LabState, lab_state
from engine.core.sizes import gib
from memorymark_site.accounts import mail
from memorymark_site.environment import MANAGE, START_WORKER
from memorymark_site.operations.site_metrics import last_backup

logger = logging.getLogger(__name__)

WAITS_SECONDS = 1800.0
BACKUP_SECONDS = 2 * 24 * 3600.0
FREE_SHARE = 0.1
TOLD_EVERY_SECONDS = 24 * 3600.0
"""Reminder interval for an alarm that persists."""


@dataclass(frozen=True)
class Facts:
    """The state that alarms are computed from.

    Attributes:
        lab: The lab's state; ``None`` if the database does not respond.
        backup_at: When the last backup was verified or, without one, when the lab began, in
            seconds since 1970; ``None`` if unknown.
        free_bytes: Free disk below the data folder.
        total_bytes: The size of that disk.
    """

    lab: LabState | None
    backup_at: float | None
    free_bytes: int
    total_bytes: int


@dataclass
class Told:
    """The alarms already sent, kept in the data folder: the database may be the problem.

    Attributes:
        at: When each alarm that still persists was last mailed, in seconds since 1970.
        addresses: The admins' addresses when the database last responded.
    """

    at: dict[str, float] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)


def facts() -> Facts:
    """Read them now."""
    disk, backup_at = shutil.disk_usage(settings.DATA_DIR), last_backup()
    try:
        return Facts(lab_state(), backup_at or _begun_at(), disk.free, disk.total)
    except DatabaseError:
        return Facts(None, backup_at, disk.free, disk.total)


def _begun_at() -> float | None:
    """The time of the lab's first account."""
    first: datetime | None = User.objects.aggregate(first=Min("date_joined"))["first"]
    return first.timestamp() if first else None


def alarms(facts: Facts, now: float) -> dict[str, str]:
    """The alarms by name, each with what to do; none if all is well."""
    return dict(_alarms(facts, now))


def _alarms(facts: Facts, now: float) -> Iterator[tuple[str, str]]:
    if facts.lab is None:
        yield "database", "The database does not respond. Look at its service and its log."
    else:
        if not facts.lab.nodes["online"] + facts.lab.nodes["draining"]:
            yield "nodes", f"No worker is running. Start one: {START_WORKER}"
        for lane, seconds in facts.lab.lane_wait_seconds.items():
            if seconds > WAITS_SECONDS:
                yield (
                    f"lane {lane}",
                    f"Nothing has been taken from the lane {lane} for {seconds / 60:.0f} minutes. "
                    "Look at the workers on the GPUs page, or start more.",
                )
    if facts.backup_at is not None and now - facts.backup_at > BACKUP_SECONDS:
        days = (now - facts.backup_at) / (24 * 3600)
        yield (
            "backup",
            f"No backup has succeeded for {days:.0f} days. Look at the log of its timer "
            f"(journalctl -u memorymark-backup), or run: {MANAGE} backup",
        )
    if facts.free_bytes < FREE_SHARE * facts.total_bytes:
        yield (
            "disk",
            f"Only {gib(facts.free_bytes, 1)} of {gib(facts.total_bytes, 0)} are "
            "free where the data folder is. Remove old backups, keep logs for fewer days "
            "(MEMORYMARK_KEEP_LOG_DAYS), or add disk.",
        )


def tell_admins(found: dict[str, str], *, database_responds: bool) -> int:
    """Mail all alarms to the admins if one of them is new or a day has passed.

    Returns:
        How many e-mails were sent.

    Raises:
        NotSent: If the mail server took none; then they are tried again the next time.
    """
    told, now = _read(), time()
    if database_responds:
        admins = User.objects.filter(is_staff=True, is_active=True).exclude(email="")
        told.addresses = sorted(admins.values_list("email", flat=True))
    due = [name for name in found if now - told.at.get(name, 0.0) > TOLD_EVERY_SECONDS]
    sent = _send(list(found.values()), told.addresses) if due else 0
    if sent:
        told.at |= dict.fromkeys(found, now)
    told.at = {name: at for name, at in told.at.items() if name in found}
    _file().write_text(json.dumps(asdict(told)), encoding="utf-8")
    return sent


def _send(texts: list[str], addresses: list[str]) -> int:
    """Send all alarms to each address; returns how many e-mails were accepted.

    Raises:
        NotSent: If none was.
    """
    subject = f"{len(texts)} alarms of MemoryMark" if len(texts) > 1 else "An alarm of MemoryMark"
    refusals = []
    for address in addresses:
        try:
            mail.send(subject, "\n\n".join([*texts, ""]), address)
        except mail.NotSent as refusal:
            logger.warning("an alarm could not be sent to one admin: %s", refusal)
            refusals.append(refusal)
    if refusals and len(refusals) == len(addresses):
        raise refusals[0]
    return len(addresses) - len(refusals)


def _read() -> Told:
    file = _file()
    return Told(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Told()


def _file() -> Path:
    return Path(settings.DATA_DIR) / "alarms.json"
