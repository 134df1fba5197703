"""Who may see and change what: each rule for each role."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, User

from analyses import permissions
from analyses.models import SavedView
from analyses.tests.factories import make_analysis, make_user, make_viewer

People = dict[str, User | AnonymousUser]


@pytest.fixture
def people(db: None) -> People:
    return {
        "anonymous": AnonymousUser(),
        "deactivated": make_user("dora", is_active=False),
        "deactivated admin": make_user("dan", is_staff=True, is_active=False),
        "viewer": make_viewer(),
        "member": make_user("grace"),
        "admin": make_user("ada", is_staff=True),
    }


def test_each_rule_has_a_least_role(people: People) -> None:
    allowed = {
        rule.__name__: [name for name, user in people.items() if rule(user)]
        for rule in (permissions.may_see_lab, permissions.may_work, permissions.may_administer)
    }
    assert allowed == {
        "may_see_lab": ["viewer", "member", "admin"],
        "may_work": ["member", "admin"],
        "may_administer": ["admin"],
    }


def _changers(people: People, owner: str) -> list[str]:
    user = people[owner]
    assert isinstance(user, User)
    analysis = make_analysis(user)
    return [name for name, one in people.items() if permissions.may_change(one, analysis)]


def test_an_analysis_is_changed_by_its_owner_and_admins(people: People) -> None:
    assert _changers(people, "member") == ["member", "admin"]
    assert _changers(people, "admin") == ["admin"]


@pytest.mark.parametrize("owner", ["viewer", "deactivated", "deactivated admin"])
def test_an_owner_who_lost_the_role_changes_nothing(people: People, owner: str) -> None:
    assert _changers(people, owner) == ["admin"]


def _deleters(people: People, owner: str, *, is_shared: bool) -> list[str]:
    user = people[owner]
    assert isinstance(user, User)
    view = SavedView(owner=user, name="mine", is_shared=is_shared)
    return [name for name, one in people.items() if permissions.may_delete_view(one, view)]


@pytest.mark.parametrize(
    ("owner", "of_private", "of_shared"),
    [
        ("member", ["member"], ["member", "admin"]),
        ("admin", ["admin"], ["admin"]),
        ("viewer", [], ["admin"]),
        ("deactivated", [], ["admin"]),
    ],
)
def test_a_view_is_deleted_by_its_owner_and_a_shared_one_by_admins(
    people: People, owner: str, of_private: list[str], of_shared: list[str]
) -> None:
    assert _deleters(people, owner, is_shared=False) == of_private
    assert _deleters(people, owner, is_shared=True) == of_shared
