"""Advice for members whose imported jobs train with a batch that is known to be slow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses.models import Analysis, Concern, InboxEntry, Status
from analyses.notifications import inbox
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from analyses.training_jobs.tests.reported_jobs import make_training_job

pytestmark = pytest.mark.database

SETTINGS: dict[str, Any] = {
    "model": "bert",
    "current_batch_size": 16,
    "precision": "bf16-mixed",
    "sequence_length": 128,
}


def analyzed(owner: User, **fields: Any) -> Analysis:
    """An analysis of today that has found a faster batch for :data:`SETTINGS`."""
    request = make_request(gpu="a100-80gb", **SETTINGS)
    given: dict[str, Any] = {
        "request": request,
        "finished_at": timezone.now() - timedelta(hours=1),
    } | fields
    return make_analysis(owner, Status.SUCCEEDED, **given)


def imported(member: User, **changes: Any) -> None:
    make_training_job(member, **{"reporter": "wandb", "gpus": 1, "request": SETTINGS} | changes)


def advice(member: User) -> list[InboxEntry]:
    return list(inbox.unread_of(member).filter(kind=Concern.ADVICE))


def test_a_job_that_went_on_with_the_batch_of_before_gets_advice(member: User) -> None:
    analysis = analyzed(member)
    imported(member)
    (entry,) = advice(member)
    assert entry.analysis == analysis
    text = inbox.sentence(entry)
    assert "W&B della/1 trained with batch 16, 26.00 of 80.00 GiB in use (measured). " in text
    assert "Recommended: batch 16 to 128, 1." in text
    assert text.endswith("(predicted).")


def test_more_jobs_and_imports_of_them_are_one_entry(member: User) -> None:
    analyzed(member)
    for number in (1, 1, 2):
        imported(member, id=f"run-{number}")
    assert len(advice(member)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"request": SETTINGS | {"current_batch_size": 128}},
        {"request": SETTINGS | {"sequence_length": 512}},
        {"request": {"model": "bert"}},
        {"request": {}},
        {"device_name": "NVIDIA A10"},
        {"gpus": 4},
        {"ended_at": (timezone.now() - timedelta(hours=1, minutes=30)).isoformat()},
    ],
    ids=["batch", "length", "no batch logged", "nothing logged", "GPU", "GPUs", "before"],
)
def test_a_job_of_other_settings_or_of_before_the_answer_gets_none(
    member: User, changes: dict[str, Any]
) -> None:
    analyzed(member)
    imported(member, **changes)
    assert advice(member) == []


def test_what_a_job_has_not_logged_need_not_be_the_same(member: User) -> None:
    analyzed(member)
    imported(member, request={"model": "bert", "current_batch_size": 16})
    assert len(advice(member)) == 1


def test_without_a_gain_there_is_no_advice(member: User) -> None:
    analyzed(member, result=make_result(recommended=16))
    imported(member)
    assert advice(member) == []


def test_the_job_of_another_member_says_nothing_about_ones_analysis(member: User) -> None:
    analyzed(member)
    imported(make_user("alan"))
    assert not InboxEntry.objects.filter(kind=Concern.ADVICE).exists()
