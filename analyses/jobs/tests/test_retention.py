"""Old rows are only deleted if an admin has set a limit, and results never are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError
from django.utils import timezone
from pytest_django import Settings

from analyses.jobs import retention
from analyses.jobs.retention import RULES, Housekeeper
from analyses.models import (
    Analysis,
    CountedSavings,
    Delivery,
    LogLine,
    Note,
    Notification,
    Status,
    Tag,
    Trial,
)
from analyses.tests.factories import add_log, make_analysis, make_notification

pytestmark = pytest.mark.database

LOGS, FAILED, NOTIFICATIONS, JOBS = (rule.setting for rule in RULES)
Keep = Callable[..., None]


@pytest.fixture
def keep(settings: Settings) -> Keep:
    """Sets the days to keep; kinds not named are kept forever."""

    def set_days(**days: int) -> None:
        settings.KEPT_DAYS = dict.fromkeys((LOGS, FAILED, NOTIFICATIONS, JOBS), 0) | days

    set_days()
    return set_days


def _ended(owner: User, status: Status, days: float) -> Analysis:
    at = timezone.now() - timedelta(days=days)
    analysis = make_analysis(owner, status, finished_at=at)
    add_log(analysis, "one", "two")
    return analysis


def _run(*arguments: str) -> str:
    said = StringIO()
    call_command("retention", *arguments, stdout=said)
    return said.getvalue()


def _left() -> set[int]:
    return set(Analysis.objects.values_list("pk", flat=True))


def test_by_default_nothing_is_deleted(member: User, keep: Keep) -> None:
    for status in (Status.SUCCEEDED, Status.FAILED):
        _ended(member, status, 4000)
    said = _run()
    assert said.count("(off): removed 0") == 4
    assert (Analysis.objects.count(), LogLine.objects.count()) == (2, 4)


def test_log_lines_are_deleted_and_numbers_kept(member: User, keep: Keep) -> None:
    keep(**{LOGS: 30})
    old, young = _ended(member, Status.SUCCEEDED, 31), _ended(member, Status.SUCCEEDED, 29)
    running = make_analysis(member, Status.RUNNING)
    add_log(running, "still at it")
    trials, result = old.trials.count(), old.result
    _run()
    old.refresh_from_db()
    assert (old.log_lines.count(), old.trials.count(), old.result) == (0, trials, result)
    assert young.log_lines.count() == 2
    assert running.log_lines.count() == 1


def test_analyses_without_a_result_are_deleted_completely(member: User, keep: Keep) -> None:
    keep(**{FAILED: 30})
    for status in (Status.FAILED, Status.CANCELLED, Status.LOST):
        _ended(member, status, 31)
    young = _ended(member, Status.FAILED, 29)
    succeeded = _ended(member, Status.SUCCEEDED, 4000)
    waiting = make_analysis(member)
    savings = CountedSavings.objects.count()
    assert "removed 3 analyses" in _run()
    assert _left() == {young.pk, succeeded.pk, waiting.pk}
    assert LogLine.objects.count() == 4
    assert Trial.objects.count() == succeeded.trials.count()
    assert CountedSavings.objects.count() == savings == 1


def test_labelled_analyses_are_kept(member: User, keep: Keep) -> None:
    keep(**{FAILED: 30})
    noted, tagged, neither = (_ended(member, Status.FAILED, 31) for _ in range(3))
    Note.objects.create(analysis=noted, text="why?", author=member)
    tagged.tags.add(Tag.objects.create(name="puzzle"))
    _run()
    assert _left() == {noted.pk, tagged.pk}
    assert not Analysis.objects.filter(pk=neither.pk).exists()


UNSENT = (Delivery.WAITING, Delivery.SENDING)


def test_finished_notifications_are_deleted(member: User, keep: Keep) -> None:
    keep(**{NOTIFICATIONS: 30})
    old = timezone.now() - timedelta(days=31)
    for status in Delivery:
        for at in (old, timezone.now()):
            ended = {} if status in UNSENT else {"finished_at": at}
            make_notification(make_analysis(member), status=status, job=ended)
    _run()
    left = Counter(Notification.objects.values_list("status", flat=True))
    assert left == {status: 2 if status in UNSENT else 1 for status in Delivery}


def test_a_dry_run_reports_and_deletes_nothing(member: User, keep: Keep) -> None:
    keep(**{FAILED: 30, LOGS: 10})
    _ended(member, Status.FAILED, 31)
    said = _run("--dry-run")
    assert f"{FAILED} (after 30 days): would remove 1 analyses" in said
    assert f"{LOGS} (after 10 days): would remove 2 log lines" in said
    assert f"{NOTIFICATIONS} (off): would remove 0" in said
    assert (Analysis.objects.count(), LogLine.objects.count()) == (1, 2)


def test_housekeeping_works_in_small_steps_and_then_rests(
    member: User, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(**{FAILED: 30})
    few = next(rule for rule in RULES if rule.setting == FAILED)
    rule = retention.Rule(few.setting, few.what, few.rows, at_once=2)
    monkeypatch.setattr(retention, "RULES", (rule,))
    for _ in range(5):
        _ended(member, Status.FAILED, 31)
    housekeeper, left = Housekeeper(), []
    for _ in range(3):
        housekeeper.look()
        left.append(Analysis.objects.count())
    assert left == [3, 1, 0]
    _ended(member, Status.FAILED, 31)
    housekeeper.look()
    assert Analysis.objects.count() == 1  # it looks again in an hour


def test_housekeeping_survives_an_unavailable_database(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Down:
        def close(self) -> None:
            """Does nothing, in place of a connection."""

    def fail(_rule: object) -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(retention.Rule, "remove_some", fail)
    monkeypatch.setattr(retention, "connection", Down())
    Housekeeper().look()
    assert "stays for a while" in caplog.text
