"""The admins' page of imported jobs: filters, deletion, and how long jobs are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from analyses.models import TrainingJob
from analyses.tests.factories import make_user
from analyses.training_jobs.services import MAX_NAMED
from analyses.training_jobs.tests.reported_jobs import make_training_job
from memorymark_site.accounts.models import AuditEntry

pytestmark = pytest.mark.database

URL = "/gpu-hours/jobs/"


@pytest.fixture
def admin(db: None) -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def page(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


def left() -> set[str]:
    return set(TrainingJob.objects.values_list("external_id", flat=True))


def test_jobs_are_listed_by_reporter_and_user(page: Client, admin: User, member: User) -> None:
    make_training_job(member, id="mine", name="bert-run")
    make_training_job(admin, id="other", reporter="wandb", name="gpt-run")
    for query, shown, hidden in (
        (f"?user={member.get_username().upper()}", "bert-run", "gpt-run"),
        ("?reporter=wandb", "gpt-run", "bert-run"),
    ):
        html = page.get(URL + query).content.decode()
        assert shown in html
        assert hidden not in html
    assert "No matching jobs" in page.get(f"{URL}?user=nobody").content.decode()
    assert "Imported jobs</a>" in page.get("/gpu-hours/").content.decode()


def test_ticked_jobs_are_deleted_and_the_audit_log_names_them(page: Client, admin: User) -> None:
    keys = [make_training_job(admin, id=f"della/{number}").pk for number in range(3)]
    page.post(f"{URL}delete/", {"job": keys[:2]})
    assert left() == {"della/2"}
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.actor) == ("jobs_deleted", "2", admin)
    assert "Slurm della/0" in entry.what


def test_all_that_a_filter_shows_are_deleted_and_no_others(
    page: Client, admin: User, member: User
) -> None:
    for number in range(MAX_NAMED + 1):
        make_training_job(member, id=f"mine/{number}")
    make_training_job(admin, id="other")
    page.post(f"{URL}delete/", {"user": member.get_username(), "all": "1"})
    assert left() == {"other"}
    assert AuditEntry.objects.get().what == f"user {member.get_username()}"


@pytest.mark.parametrize("given", [{}, {"job": ["x", "-1", "9" * 30]}])
def test_without_a_ticked_job_nothing_is_deleted(
    page: Client, admin: User, given: dict[str, Any]
) -> None:
    make_training_job(admin)
    page.post(f"{URL}delete/", given)
    assert len(left()) == 1
    assert not AuditEntry.objects.exists()


def test_the_page_says_how_long_jobs_are_kept(page: Client, settings: Any) -> None:
    assert "Kept until you delete them" in page.get(URL).content.decode()
    settings.KEPT_DAYS = settings.KEPT_DAYS | {"MEMORYMARK_KEEP_JOB_DAYS": 400}
    assert "Kept for 400 days" in page.get(URL).content.decode()


def test_old_jobs_are_removed_and_running_ones_stay(admin: User, settings: Any) -> None:
    settings.KEPT_DAYS = settings.KEPT_DAYS | {"MEMORYMARK_KEEP_JOB_DAYS": 30}
    for name, days, is_running in (("old", 31, False), ("young", 29, False), ("on", 31, True)):
        ended = timezone.now() - timedelta(days=days)
        times = {
            "started_at": (ended - timedelta(hours=1)).isoformat(),
            "ended_at": ended.isoformat(),
        }
        make_training_job(admin, id=name, is_running=is_running, **times)
    call_command("retention")
    assert left() == {"young", "on"}
