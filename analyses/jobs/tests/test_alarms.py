"""Alarms for the operator: when there is one, and who is told of it how often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.core import mail as outbox
from django.core.management import CommandError, call_command
from django.db import DatabaseError
from pytest_django import Settings

from analyses.jobs import alarms as alarms_module
from analyses.jobs.alarms import Facts, alarms, tell_admins
from analyses.jobs.lab_state import Ended, LabState
from analyses.tests.factories import make_user
from memorymark_site.accounts.mail import NotSent

NOW = 1_800_000_000.0
DAY = 24 * 3600.0
LAB = LabState(
    analyses={},
    oldest_wait_seconds=0.0,
    lane_wait_seconds={},
    ended=Ended({}, {}, 0, 0.0, 0.0),
    nodes={"online": 1, "draining": 0, "problem": 0, "offline": 0},
    gpus=0,
    gpus_busy=0,
    notifications={},
    lookups={},
)
WELL = Facts(LAB, NOW - DAY, free_bytes=50 << 30, total_bytes=100 << 30)


def test_a_lab_in_order_has_no_alarms() -> None:
    assert alarms(WELL, NOW) == {}


@pytest.mark.parametrize(
    ("facts", "name", "text"),
    [
        (replace(WELL, lab=None), "database", "The database does not respond."),
        (
            replace(WELL, lab=replace(LAB, nodes={**LAB.nodes, "online": 0, "problem": 1})),
            "nodes",
            "No worker is running.",
        ),
        (
            replace(WELL, lab=replace(LAB, lane_wait_seconds={"predict": 3600.0})),
            "lane predict",
            "from the lane predict for 60 minutes",
        ),
        (replace(WELL, backup_at=NOW - 3 * DAY), "backup", "No backup has succeeded for 3 days"),
        (replace(WELL, free_bytes=5 << 30), "disk", "Only 5.0 GiB of 100 GiB are free"),
    ],
)
def test_each_alarm_says_what_is_wrong(facts: Facts, name: str, text: str) -> None:
    found = alarms(facts, NOW)
    assert list(found) == [name]
    assert text in found[name]


@pytest.mark.django_db
def test_a_new_lab_has_two_days_for_its_first_backup(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    assert "backup" not in alarms(alarms_module.facts(), NOW)  # nobody is there yet
    make_user("grace")
    known = alarms_module.facts()
    assert known.backup_at is not None
    assert "backup" not in alarms(known, known.backup_at + DAY)
    assert "backup" in alarms(known, known.backup_at + 3 * DAY)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> dict[str, float]:
    """A clock to set, an empty data folder, and an admin with an address."""
    settings.DATA_DIR = tmp_path
    make_user("grace", is_staff=True, email="grace@lab.example")
    make_user("ada", email="ada@lab.example")
    clock = {"is": NOW}
    monkeypatch.setattr(alarms_module, "time", lambda: clock["is"])
    return clock


@pytest.mark.django_db
def test_admins_are_told_at_once_and_then_once_a_day(now: dict[str, float]) -> None:
    def tell(**found: str) -> int:
        return tell_admins(found, database_responds=True)

    assert tell(disk="Full.") == 1
    assert tell(disk="Full.") == 0
    now["is"] += DAY + 1
    assert tell(disk="Full.") == 1
    assert tell(disk="Full.", nodes="None.") == 1  # a new one
    assert tell(nodes="None.") == 0
    assert tell(disk="Full.", nodes="None.") == 1  # one that had ended
    assert [message.to for message in outbox.outbox] == [["grace@lab.example"]] * 4
    assert outbox.outbox[2].subject == "2 alarms of MemoryMark"
    assert outbox.outbox[2].body == "Full.\n\nNone.\n\n"


@pytest.mark.django_db
def test_an_address_that_is_refused_keeps_no_one_else_from_being_told(
    now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user("zuse", is_staff=True, email="zuse@lab.example")
    told: list[str] = []
    refused = {"grace@lab.example", "zuse@lab.example"}

    def send(_subject: str, _text: str, address: str) -> None:
        if address in refused:
            raise NotSent("mailbox unavailable")
        told.append(address)

    monkeypatch.setattr("memorymark_site.accounts.mail.send", send)
    with pytest.raises(NotSent, match="mailbox unavailable"):
        tell_admins({"disk": "Full."}, database_responds=True)
    refused.remove("zuse@lab.example")
    assert tell_admins({"disk": "Full."}, database_responds=True) == 1  # tried again
    assert tell_admins({"disk": "Full."}, database_responds=True) == 0
    assert told == ["zuse@lab.example"]


@pytest.mark.django_db
def test_admins_are_told_that_the_database_is_away(
    now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tell_admins({}, database_responds=True) == 0  # and keeps their addresses

    def away() -> LabState:
        raise DatabaseError("no route to host")

    monkeypatch.setattr(alarms_module, "lab_state", away)
    with pytest.raises(SystemExit) as ended:
        call_command("alarms", "--mail")
    assert ended.value.code == 1
    (message,) = outbox.outbox
    assert message.to == ["grace@lab.example"]
    assert "The database does not respond." in message.body


@pytest.mark.django_db
def test_without_email_the_command_says_what_to_set(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    with pytest.raises(CommandError, match="set EMAIL_URL"):
        call_command("alarms", "--mail")
