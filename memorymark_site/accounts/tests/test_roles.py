"""Roles: those that include others, that of an account, and that which a view needs."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory

from analyses.tests.factories import make_user, make_viewer
from memorymark_site.accounts.models import Viewer
from memorymark_site.accounts.roles import (
    Role,
    has_role,
    member,
    needed,
    needs,
    refusal,
    role_of,
    stored_role,
)

VIEWER, MEMBER, ADMIN = Role.VIEWER, Role.MEMBER, Role.ADMIN


def test_a_role_includes_itself_and_all_lesser_ones() -> None:
    included = {role: [other for other in Role if role.includes(other)] for role in Role}
    assert included == {
        VIEWER: [VIEWER],
        MEMBER: [VIEWER, MEMBER],
        ADMIN: [VIEWER, MEMBER, ADMIN],
    }


def test_each_account_has_one_role_and_the_lesser_ones_with_it(db: None) -> None:
    marked_admin = make_user("ada", is_staff=True)
    Viewer.objects.create(user=marked_admin)  # the higher one counts
    accounts: dict[Role, User] = {
        VIEWER: make_viewer(),
        MEMBER: make_user("grace"),
        ADMIN: marked_admin,
    }
    for role, user in accounts.items():
        assert role_of(user) is stored_role(user) is role
        assert [other for other in Role if has_role(user, other)] == [
            other for other in Role if role.includes(other)
        ]


@pytest.mark.parametrize("is_staff", [False, True])
def test_a_deactivated_account_has_no_role_but_keeps_the_stored_one(
    db: None, is_staff: bool
) -> None:
    user = make_user("dora", is_staff=is_staff, is_active=False)
    assert role_of(user) is None
    assert not any(has_role(user, role) for role in Role)
    assert stored_role(user) is (ADMIN if is_staff else MEMBER)


def test_a_stranger_has_no_role() -> None:
    assert role_of(AnonymousUser()) is None
    assert not any(has_role(AnonymousUser(), role) for role in Role)


def test_by_default_a_view_lets_viewers_only_read() -> None:
    def view() -> None: ...

    for reading in ("GET", "HEAD", "OPTIONS", "TRACE"):
        assert needed(view, reading) is VIEWER
    for changing in ("POST", "PUT", "PATCH", "DELETE", None):
        assert needed(view, changing) is MEMBER


@pytest.mark.parametrize("role", Role)
def test_a_declared_role_applies_to_every_method(role: Role) -> None:
    def view() -> str:
        return "as before"

    marked = needs(role)(view)
    assert marked is view
    assert marked() == "as before"
    assert {needed(marked, method) for method in ("GET", "POST", None)} == {role}


def test_a_refusal_names_what_is_missing() -> None:
    assert "lab admin" in refusal(ADMIN)
    for role in (VIEWER, MEMBER):
        assert "read-only" in refusal(role)


def test_the_member_is_the_signed_in_user() -> None:
    request = RequestFactory().get("/")
    request.user = User(username="grace")
    assert member(request) is request.user
