"""The inbox by the API: what it lists, and marking it as read."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.models import Concern, Status
from analyses.notifications import inbox
from analyses.overview.changes import mention
from analyses.tests.factories import make_analysis, make_result, make_user
from memorymark_site.accounts.models import Viewer

pytestmark = pytest.mark.database


def mentioned(owner: User, *, times: int = 1) -> list[int]:
    """Entries about analyses that another member has mentioned."""
    by = make_user("alan")
    for _ in range(times):
        mention(make_analysis(owner, Status.SUCCEEDED, make_result()), by)
    return list(inbox.unread_of(owner).order_by("pk").values_list("pk", flat=True))


def listed(api: APIClient, **query: Any) -> dict[str, Any]:
    body: dict[str, Any] = api.get("/api/v1/inbox/", query).json()
    return body


def test_a_mention_is_listed_with_who_made_it_and_the_text_of_the_page(
    api: APIClient, member: User
) -> None:
    (pk,) = mentioned(member)
    body = listed(api)
    assert body["count"] == 1
    (entry,) = body["results"]
    assert (entry["id"], entry["kind"], entry["by"]) == (pk, Concern.MENTION, "alan")
    assert entry["read_at"] is None
    assert entry["text"] == inbox.sentence(inbox.entries_of(member)[0])


def test_read_entries_are_listed_among_all_only(api: APIClient, member: User) -> None:
    first, second = mentioned(member, times=2)
    answer = api.post("/api/v1/inbox/read/", {"entries": [first]}, format="json")
    assert answer.json() == {"unread": 1}
    assert [one["id"] for one in listed(api)["results"]] == [second]
    assert [one["id"] for one in listed(api, show="all")["results"]] == [second, first]
    assert api.post("/api/v1/inbox/read/", {"all": True}, format="json").json() == {"unread": 0}


def test_entries_of_others_are_neither_listed_nor_marked(api: APIClient) -> None:
    other = make_user("ada")
    (pk,) = mentioned(other)
    assert listed(api, show="all")["count"] == 0
    api.post("/api/v1/inbox/read/", {"entries": [pk]}, format="json")
    assert inbox.count_unread(other) == 1


@pytest.mark.parametrize("body", [{}, {"entries": []}, {"entries": ["a"]}, {"entries": [0]}])
def test_what_names_no_entry_is_refused(api: APIClient, member: User, body: dict[str, Any]) -> None:
    mentioned(member)
    answer = api.post("/api/v1/inbox/read/", body, format="json")
    assert answer.status_code == 400
    assert inbox.count_unread(member) == 1


def test_another_choice_of_entries_is_refused(api: APIClient) -> None:
    assert api.get("/api/v1/inbox/", {"show": "new"}).status_code == 400


def test_a_former_member_can_still_clear_it(api: APIClient, member: User) -> None:
    mentioned(member)
    Viewer.objects.create(user=member)
    assert api.post("/api/v1/inbox/read/", {"all": True}, format="json").status_code == 200
