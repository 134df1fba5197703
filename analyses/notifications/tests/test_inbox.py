"""The inbox: who is told of what, until it is read or decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses import leaving, services
from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.models import Analysis, Concern, InboxEntry, Notification, QueryKind, Status
from analyses.notifications import inbox
from analyses.overview.changes import mention
from analyses.tests.factories import lease_on, make_analysis, make_request, make_result, make_user
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.training_runs.services import store_report
from analyses.training_runs.tests.recorded_runs import recorded_run

pytestmark = pytest.mark.database

HTMX = {"HX-Request": "true"}


def ended(owner: User, outcome: Any = None, **fields: Any) -> Analysis:
    """An analysis that a worker has just finished."""
    claim = lease_on(make_analysis(owner, **fields))
    lease.finish(claim, make_result() if outcome is None else outcome)
    return Analysis.objects.get(pk=claim.subject_id)


def kinds(member: User) -> list[str]:
    return list(inbox.unread_of(member).order_by("pk").values_list("kind", flat=True))


def text(member: User) -> str:
    return inbox.sentence(inbox.entries_of(member)[0])


def report(analysis: Analysis, **changes: Any) -> None:
    record = replace(recorded_run(**changes), analysis_id=analysis.pk)
    body = {"id": str(uuid4()), "host": "node-1", "record": record.to_dict()}
    store_report(analysis.owner, body)


# What comes in


def test_an_analysis_with_a_gain_waits_for_its_owners_decision(member: User) -> None:
    ended(member)
    assert kinds(member) == [Concern.DECISION]
    assert text(member).startswith("batch 16 to 128: 1.")
    assert "(predicted)" in text(member)
    assert "a year at assumed hours and prices." in text(member)


def test_an_analysis_that_confirms_todays_batch_is_no_decision(member: User) -> None:
    ended(member, make_result(recommended=16))
    assert kinds(member) == []


def test_a_failure_comes_with_its_first_line_and_a_cancellation_of_ones_own_does_not(
    member: User,
) -> None:
    ended(member, Failure("crashed", "The engine crashed.\nTraceback: long"))
    assert kinds(member) == [Concern.FAILED]
    assert text(member) == "The engine crashed."
    services.cancel(make_analysis(member), member)
    assert len(kinds(member)) == 1


def test_a_plan_may_find_the_change_and_asks_once(member: User) -> None:
    ended(member, make_result(recommended=16))
    answer_next(QueryKind.PLAN, plan_with_answers())
    assert kinds(member) == [Concern.DECISION]
    assert text(member).startswith("bf16, batch 64: ")


def test_a_newer_decision_stands_for_the_earlier_ones_of_its_workload(member: User) -> None:
    first, other = ended(member), ended(member, request=make_request(gpu="t4"))
    again = services.run_again(first, member)
    lease.finish(lease_on(again), make_result())
    waiting = set(inbox.unread_of(member).values_list("analysis", flat=True))
    assert waiting == {other.pk, again.pk}


def test_a_mention_is_for_the_owner_alone(member: User) -> None:
    theirs = make_analysis(make_user("alan"), Status.SUCCEEDED, usd_per_year=100.0)
    mention(theirs, member)
    assert kinds(theirs.owner) == [Concern.MENTION]
    assert kinds(member) == []
    assert text(theirs.owner).startswith("grace: batch 16 to 128 would save $100 per year")


def test_a_run_as_recommended_verifies_the_prediction_once(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    for _ in range(2):
        report(analysis, peak_reserved_bytes=13_000_000_000)
    assert kinds(member) == [Concern.VERIFIED]
    assert text(member).startswith("Run on node-1 with batch 128: 12.11 GiB reserved (measured), ")


def test_a_run_outside_the_interval_misses_the_prediction(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    report(analysis, step_seconds=9.0, step_seconds_low=8.9, step_seconds_high=9.1)
    assert kinds(member) == [Concern.MISSED]
    assert "9,000 ms a step (measured), predicted " in text(member)


def test_a_job_with_the_batch_of_before_gets_advice(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    report(analysis, batch_size=16, peak_allocated_bytes=7 * 2**30, peak_reserved_bytes=8 * 2**30)
    assert kinds(member) == [Concern.ADVICE]
    assert "batch 16, 8.00 of " in text(member)
    assert "Recommended is batch 128, 1." in text(member)
    assert "the speed of batch 16 (predicted)." in text(member)


def test_a_run_of_another_gpu_or_model_tells_nothing(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    report(analysis, batch_size=16, device_name="Tesla T4")
    assert kinds(member) == []


def test_without_choices_nothing_is_sent(member: User) -> None:
    theirs = make_analysis(make_user("alan"), Status.SUCCEEDED, usd_per_year=100.0)
    mention(theirs, member)
    assert not Notification.objects.exists()


# What goes out


def test_adopting_closes_what_waited_for_it(member: User) -> None:
    analysis, other = ended(member), ended(member, request=make_request(gpu="t4"))
    services.adopt(analysis, make_user("root", is_staff=True))
    assert list(inbox.unread_of(member).values_list("analysis", flat=True)) == [other.pk]


def test_looking_at_an_analysis_marks_its_entries_as_read(page: Client, member: User) -> None:
    seen, other = ended(member), ended(member, request=make_request(gpu="t4"))
    assert 'aria-label="Inbox, 2 unread"' in page.get("/").content.decode()
    assert 'aria-label="Inbox, 1 unread"' in page.get(f"/{seen.pk}/").content.decode()
    assert list(inbox.unread_of(member).values_list("analysis", flat=True)) == [other.pk]


def test_others_looking_at_it_mark_nothing(client: Client, member: User) -> None:
    analysis = ended(member)
    client.force_login(make_user("eve"))
    client.get(f"/{analysis.pk}/")
    assert kinds(member) == [Concern.DECISION]


def test_one_entry_or_all_are_marked_as_read(page: Client, member: User) -> None:
    for gpu in ("a10", "t4", "l4"):
        ended(member, request=make_request(gpu=gpu))
    first = inbox.unread_of(member)[0]
    page.post("/inbox/read/", {"entry": first.pk})
    assert len(kinds(member)) == 2
    html = page.get("/inbox/?show=all").content.decode()
    assert html.count('<span class="inbox-kind') == 3
    assert page.get("/inbox/").content.decode().count('<span class="inbox-kind') == 2
    page.post("/inbox/read/", {"all": "1"})
    assert kinds(member) == []
    assert "Nothing unread" in page.get("/inbox/").content.decode()


@pytest.mark.parametrize("data", [{"entry": "{pk}"}, {"all": "1"}, {"entry": "x"}, {}])
def test_nobody_marks_the_entries_of_others(
    client: Client, member: User, data: dict[str, str]
) -> None:
    ended(member)
    entry = InboxEntry.objects.get()
    client.force_login(make_user("eve"))
    given = {name: value.format(pk=entry.pk) for name, value in data.items()}
    assert client.post("/inbox/read/", given).status_code == 302
    assert kinds(member) == [Concern.DECISION]
    assert "BERT" not in client.get("/inbox/?show=all").content.decode()


def test_who_takes_over_an_analysis_gets_its_entries(member: User) -> None:
    leaver = make_user("alan")
    ended(leaver)
    leaving.leave(make_user("root", is_staff=True, is_superuser=True), leaver, member)
    assert kinds(member) == [Concern.DECISION]
    assert kinds(leaver) == []


# Live


def test_badge_and_list_are_sent_only_when_they_change(page: Client, member: User) -> None:
    assert page.get("/inbox/badge/?seen=", headers=HTMX).status_code == 204
    assert page.get("/inbox/?seen=", headers=HTMX).status_code == 204
    ended(member)
    badge = page.get("/inbox/badge/?seen=", headers=HTMX).content.decode()
    assert "Inbox, 1 unread" in badge
    assert page.get("/inbox/badge/?seen=1", headers=HTMX).status_code == 204
    entries = page.get("/inbox/?seen=", headers=HTMX).content.decode()
    assert "Decision waiting" in entries
    assert "<html" not in entries


def test_the_badge_counts_to_99(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    InboxEntry.objects.bulk_create(
        InboxEntry(member=member, kind=f"kind-{n}", analysis=analysis) for n in range(150)
    )
    assert "99+" in page.get("/inbox/badge/").content.decode()


def test_entries_older_than_a_page_are_on_the_next(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    InboxEntry.objects.bulk_create(
        InboxEntry(member=member, kind=f"kind-{n}", analysis=analysis, text=f"entry {n}.")
        for n in range(30)
    )
    assert "Page 1 of 2" in page.get("/inbox/").content.decode()
    second = page.get("/inbox/?page=2").content.decode()
    assert "entry 4." in second
    assert "entry 29." not in second


def test_a_decision_of_a_finished_page_in_view_is_read(page: Client, member: User) -> None:
    analysis = ended(member)
    Analysis.objects.filter(pk=analysis.pk).update(
        queued_at=analysis.queued_at - timedelta(minutes=5)
    )
    page.get(f"/{analysis.pk}/live/?seen=running-0-0-0", headers=HTMX)
    assert kinds(member) == []


def test_an_inbox_without_unread_entries_has_nothing_to_mark(page: Client) -> None:
    assert "Mark all as read" not in page.get("/inbox/?show=all").content.decode()
