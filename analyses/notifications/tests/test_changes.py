"""Changes of one line that would save most, and mentioning them to whom they belong."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from analyses import services
from analyses.jobs import notifications, plans
from analyses.jobs.plans import plan_request
from analyses.models import (
    Analysis,
    CountedSavings,
    Mention,
    Notification,
    NotificationChoices,
    QueryKind,
    Status,
)
from analyses.notifications import channels
from analyses.notifications.message import Message
from analyses.overview import changes
from analyses.overview.changes import TooOften, can_mention, changes_worth_most, mention
from analyses.tests.factories import make_analysis, make_request, make_user, make_viewer
from analyses.tests.query_answers import answer_next, plan_with_answers
from memorymark_site.accounts.models import Action, AuditEntry


@pytest.fixture
def theirs(member: User) -> Analysis:
    return make_analysis(make_user("alan"), Status.SUCCEEDED, usd_per_year=100.0)


def found() -> changes.Changes:
    return changes_worth_most(CountedSavings.objects.all())


def test_the_largest_changes_are_grouped_by_owner(member: User, theirs: Analysis) -> None:
    for number, gpu in enumerate(("t4", "l4", "h100", "a100-80gb", "rtx-4090", "l40s")):
        request = make_request(gpu=gpu)
        make_analysis(member, Status.SUCCEEDED, request=request, usd_per_year=10.0 + number)
    shown = found()
    assert [owner.username for owner, _ in shown.by_owner] == ["alan", "grace"]
    assert shown.count == 5
    assert shown.usd_per_year == pytest.approx(100 + 15 + 14 + 13 + 12)
    assert shown.by_owner[0][1][0].change == "batch 16 to 128"


def test_adopted_and_worthless_ones_are_left_out(member: User, theirs: Analysis) -> None:
    services.adopt(theirs, theirs.owner)
    make_analysis(member, Status.SUCCEEDED, request=make_request(gpu="l4"), usd_per_year=0.0)
    assert found().count == 0


def test_a_change_of_any_age_is_found(member: User) -> None:
    old = timezone.now() - timedelta(days=900)
    make_analysis(member, Status.SUCCEEDED, finished_at=old)
    assert found().count == 1


def test_the_change_is_the_decision_with_what_the_totals_count_for_it(theirs: Analysis) -> None:
    plans.submit(theirs.owner, QueryKind.PLAN, plan_request(theirs))
    answer_next(QueryKind.PLAN, plan_with_answers())
    (change,) = found().by_owner[0][1]
    assert change.change == "bf16, batch 64"
    counted = CountedSavings.objects.get()
    assert change.usd_per_year == counted.usd_per_year == counted.usd_per_year_low
    assert change.at_low_end


def test_a_mention_notifies_the_owner_and_is_audited(
    member: User, theirs: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    NotificationChoices.objects.create(member=theirs.owner, by_email=True)
    mention(theirs, member)
    told = Notification.objects.get()
    sent: list[Message] = []
    monkeypatch.setattr(channels, "send", lambda message, *_: sent.append(message))
    assert notifications.deliver(told.pk) is None
    assert "Mentioned: BERT base" in sent[0].subject
    assert "grace: batch 16 to 128 would save $100 per year" in sent[0].text
    assert sent[0].payload["event"] == "analysis.mentioned"
    assert AuditEntry.objects.get(action=Action.CHANGE_MENTIONED).actor == member


def test_mentions_are_limited(
    member: User, theirs: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mention(theirs, member)
    with pytest.raises(TooOften, match="was mentioned"):
        mention(theirs, make_user("eve"))
    Mention.objects.update(at=timezone.now() - timedelta(days=8))
    mention(theirs, member)
    monkeypatch.setattr(changes, "MENTIONS_PER_DAY", 1)
    other = make_analysis(theirs.owner, Status.SUCCEEDED, request=make_request(gpu="t4"))
    with pytest.raises(TooOften, match="24 hours"):
        mention(other, member)


def test_nothing_is_mentioned_where_nothing_is_to_be_saved(member: User, theirs: Analysis) -> None:
    with pytest.raises(LookupError):
        mention(theirs, theirs.owner)
    services.adopt(theirs, theirs.owner)
    with pytest.raises(LookupError):
        mention(theirs, member)


def test_members_mention_from_the_page_and_the_owner_sees_it(
    client: Client, member: User, theirs: Analysis
) -> None:
    client.force_login(member)
    page = client.get("/savings/").content.decode()
    assert "1 change is worth $100 a year: whom to ask" in page
    assert client.post(f"/{theirs.pk}/mention/").status_code == 302
    assert "mentioned by grace" in client.get("/savings/").content.decode()
    shown = f"mentioned this to alan on {timezone.now():%Y-%m-%d}"
    assert shown in unescape(strip_tags(client.get(f"/{theirs.pk}/").content.decode()))
    client.force_login(theirs.owner)
    assert "Mentioned to you" in client.get("/").content.decode()
    services.adopt(theirs, theirs.owner)
    assert "Mentioned to you" not in client.get("/").content.decode()


def test_members_mention_from_the_analysis_what_is_not_mentioned_yet(
    client: Client, member: User, theirs: Analysis
) -> None:
    client.force_login(member)
    button = "Mention to alan"
    assert button in client.get(f"/{theirs.pk}/").content.decode()
    sent = client.post(f"/{theirs.pk}/mention/", {"from": "analysis"})
    assert sent["Location"] == f"/{theirs.pk}/"
    page = client.get(f"/{theirs.pk}/").content.decode()
    assert "Mentioned to alan: batch 16 to 128." in page
    assert button not in page
    Mention.objects.all().delete()
    services.adopt(theirs, theirs.owner)
    assert button not in client.get(f"/{theirs.pk}/").content.decode()


def test_nobody_is_offered_to_mention_what_is_their_own_or_of_nobody(
    member: User, theirs: Analysis
) -> None:
    assert can_mention(theirs, member)
    assert not can_mention(theirs, theirs.owner)
    theirs.owner.is_active = False
    assert not can_mention(theirs, member)


def test_a_viewer_sees_whom_to_ask_but_does_not_mention(client: Client, theirs: Analysis) -> None:
    client.force_login(make_viewer())
    page = client.get("/savings/").content.decode()
    assert "whom to ask" in page
    assert "/mention/" not in page
    assert client.post(f"/{theirs.pk}/mention/").status_code == 403
    assert not Mention.objects.exists()
