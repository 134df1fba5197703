from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import SavedView
from analyses.pages.history.views import save_view
from analyses.tests.factories import make_analysis, make_user

pytestmark = pytest.mark.database


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    make_analysis(member)
    return client


def html_of(client: Client, query: str = "") -> str:
    return client.get(f"{reverse('analyses:list')}?{query}").content.decode()


def send(client: Client, **fields: Any) -> str:
    response = client.post(reverse("analyses:save-view"), fields, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def delete(client: Client, view: SavedView) -> int:
    return client.post(reverse("analyses:delete-view", args=[view.pk])).status_code


def test_the_current_view_is_saved_under_a_name(page: Client, member: User) -> None:
    offered = '<input type="hidden" name="query" value="model=bert&amp;status=failed">'
    assert offered in html_of(page, "status=failed&q=&model=bert")
    html = send(page, name="Failed BERTs", query="status=failed&q=&page=3&model=bert&invented=1")
    view = SavedView.objects.get()
    assert (view.owner, view.is_shared) == (member, False)
    assert view.query == "model=bert&status=failed"
    assert "Saved as “Failed BERTs”." in html
    address = f"{reverse('analyses:list')}?model=bert&amp;status=failed"
    assert f'href="{address}" aria-current="page">Failed BERTs' in html
    assert 'aria-current="page">Failed' not in html_of(page)


def test_saving_under_the_same_name_replaces(page: Client) -> None:
    send(page, name="mine", query="q=one")
    send(page, name="mine", query="q=two", is_shared="on")
    view = SavedView.objects.get()
    assert (view.query, view.is_shared) == ("q=two", True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": " "}, "Name: This field is required."),
        ({"name": "x" * 61}, "Name: Ensure this value has at most 60 characters"),
        ({"name": "a", "query": "q=" + "x" * 5000}, "Query: Ensure this value has at most 5000"),
    ],
)
def test_an_invalid_view_is_refused_with_the_reason(
    page: Client, fields: dict[str, str], message: str
) -> None:
    assert message in send(page, **fields)
    assert not SavedView.objects.exists()


def test_deleting_your_own_view_can_be_undone(page: Client, member: User) -> None:
    view = save_view(member, "mine & yours", "model=bert", is_shared=True)
    gone = page.post(reverse("analyses:delete-view", args=[view.pk]), follow=True)
    undo = re.findall(r'name="(name|query|is_shared)" value="([^"]*)"', gone.content.decode())
    assert not SavedView.objects.exists()
    send(page, **{name: unescape(value) for name, value in undo[:3]})

    again = SavedView.objects.get()
    assert (again.name, again.query, again.is_shared) == ("mine & yours", "model=bert", True)


def test_an_admin_cannot_undo_the_deletion_of_anothers(client: Client, db: None) -> None:
    client.force_login(make_user("root", is_staff=True))
    view = save_view(make_user("alan"), "for all", "", is_shared=True)
    gone = client.post(reverse("analyses:delete-view", args=[view.pk]), follow=True)

    assert "Deleted the view" in gone.content.decode()
    assert "Undo" not in gone.content.decode()


def test_others_only_see_shared_views(page: Client) -> None:
    alan = make_user("alan")
    save_view(alan, "secret", "q=1", is_shared=False)
    shared = save_view(alan, "for all", "q=2", is_shared=True)
    html = html_of(page)
    assert "secret" not in html
    assert "for all" in html
    assert "by alan" in html
    assert "Delete the view for all" not in html
    assert delete(page, shared) == 403
    assert SavedView.objects.count() == 2


def test_members_delete_their_own_views_and_not_hidden_ones(page: Client, member: User) -> None:
    mine = save_view(member, "mine", "", is_shared=False)
    secret = save_view(make_user("alan"), "secret", "", is_shared=False)
    assert delete(page, secret) == 404
    assert delete(page, mine) == 302
    assert list(SavedView.objects.all()) == [secret]


def test_an_admin_can_delete_shared_views(client: Client, member: User) -> None:
    client.force_login(make_user("root", is_staff=True))
    assert delete(client, save_view(member, "old", "", is_shared=True)) == 302
    assert delete(client, save_view(member, "own", "", is_shared=False)) == 404


def test_two_members_may_use_the_same_name(page: Client, member: User) -> None:
    save_view(make_user("alan"), "weekly", "q=1", is_shared=True)
    save_view(member, "weekly", "q=2", is_shared=True)
    assert html_of(page).count(">weekly") == 2


def test_a_hostile_name_stays_plain_text(page: Client, member: User) -> None:
    save_view(member, "<script>alert(1)</script>", "", is_shared=False)
    assert "<script>alert(1)" not in html_of(page)


def test_saving_needs_a_post(page: Client) -> None:
    assert page.get(reverse("analyses:save-view")).status_code == 405
