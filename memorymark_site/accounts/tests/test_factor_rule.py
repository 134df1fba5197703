"""The lab's rule for second factors, and removing another member's."""

from __future__ import annotations

from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts import second_factors
from memorymark_site.accounts.models import Action, ApiToken, AuditEntry

ACCOUNT, MEMBERS = "/account/", "/members/"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user


def _app_of(user: User) -> None:
    Authenticator.objects.create(user=user, type="totp", data={"secret": "A" * 32})
    data = {"seed": "00", "used_mask": 0}
    Authenticator.objects.create(user=user, type="recovery_codes", data=data)


def _browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def grace(db: None) -> User:
    return make_user("grace")


@pytest.fixture
def admin(db: None) -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture(params=["admins", "all"])
def rule(request: pytest.FixtureRequest, settings: Settings) -> str:
    settings.REQUIRE_MFA = request.param
    return str(request.param)


def _passkey_of(user: User, name: str = "key") -> Authenticator:
    return Authenticator.objects.create(user=user, type="webauthn", data={"name": name})


# The rule


@pytest.mark.parametrize(
    ("required", "asked"),
    [("none", []), ("admins", ["admin"]), ("all", ["admin", "member"])],
)
def test_the_rule_applies_to_the_roles_it_names_without_a_factor(
    admin: User, grace: User, settings: Settings, required: str, asked: list[str]
) -> None:
    settings.REQUIRE_MFA = required
    people: dict[str, User | AnonymousUser] = {
        "admin": admin,
        "member": grace,
        "stranger": AnonymousUser(),
    }
    assert [who for who, user in people.items() if second_factors.lacks_factor(user)] == asked

    _app_of(admin)
    _passkey_of(grace)
    assert not any(second_factors.lacks_factor(user) for user in people.values())


def test_without_a_rule_the_database_is_not_queried(admin: User, settings: Settings) -> None:
    settings.REQUIRE_MFA = "none"
    with CaptureQueriesContext(connection) as queries:
        assert second_factors.lacks_factor(admin) is False
    assert len(queries) == 0


def test_an_app_or_a_passkey_is_a_factor_and_recovery_codes_are_not(
    admin: User, grace: User
) -> None:
    def has() -> tuple[bool, bool]:
        return second_factors.has_factor(grace), bool(second_factors.factors_of(grace))

    _app_of(admin)
    assert has() == (False, False)  # it belongs to someone else
    codes = {"seed": "00", "used_mask": 0}
    Authenticator.objects.create(user=grace, type="recovery_codes", data=codes)
    assert has() == (False, False)
    passkey = _passkey_of(grace)
    assert has() == (True, True)
    passkey.delete()
    Authenticator.objects.create(user=grace, type="totp", data={"secret": "A" * 32})
    assert has() == (True, True)


def test_the_factors_of_a_member_are_listed_oldest_first(admin: User, grace: User) -> None:
    _passkey_of(admin)
    none = second_factors.factors_of(grace)
    assert (none.app, none.passkeys, none.codes_left, str(none)) == (None, [], None, "")

    older, newer = (_passkey_of(grace, name) for name in ("blue", "red"))
    found = second_factors.factors_of(grace)
    assert (found.app, found.passkeys, found.codes_left) == (None, [older, newer], None)
    assert str(found) == "passkey blue, passkey red"

    _app_of(grace)
    found = second_factors.factors_of(grace)
    assert found.app == Authenticator.objects.get(user=grace, type="totp")
    assert str(found) == "authenticator app, passkey blue, passkey red"
    codes = Authenticator.objects.get(user=grace, type="recovery_codes")
    all_left = found.codes_left
    codes.data["used_mask"] = 0b11
    codes.save()
    assert all_left is not None
    assert second_factors.factors_of(grace).codes_left == all_left - 2


def test_only_marked_views_are_open_without_a_factor() -> None:
    def view() -> None: ...

    assert second_factors.is_open_without_factor(view) is False
    assert second_factors.needs_no_factor(view) is view
    assert second_factors.is_open_without_factor(view) is True


# In the browser and the API


def test_without_a_rule_no_one_is_redirected(admin: User) -> None:
    assert _browser(admin).get("/").status_code == 200


def test_a_member_without_a_factor_is_redirected_to_set_one_up(
    admin: User, grace: User, rule: str
) -> None:
    for user, is_asked in ((admin, True), (grace, rule == "all")):
        client = _browser(user)
        for address in ("/", "/history/", "/tokens/", "/new/"):
            answer = client.get(address)
            assert answer.status_code == (302 if is_asked else 200), address
            assert not is_asked or answer["Location"] == ACCOUNT
        shown = client.get(ACCOUNT).content.decode()
        assert ("Your lab requires a second factor" in shown) == is_asked
        assert client.get("/account/app/")["Location"].startswith("/account/confirm/")
        assert client.get("/account/password/").status_code == 200
        assert client.post("/accounts/logout/").status_code == 302


def test_nothing_else_is_possible_before(admin: User, grace: User, rule: str) -> None:
    client = _browser(admin)

    assert client.post(f"{MEMBERS}{grace.pk}/deactivate/")["Location"] == ACCOUNT
    assert client.post("/tokens/", {"name": "x"})["Location"] == ACCOUNT
    assert client.get("/admin/")["Location"] == ACCOUNT
    assert client.get("/history/", headers={"HX-Request": "true"})["HX-Redirect"] == ACCOUNT
    assert User.objects.get(pk=grace.pk).is_active


def test_the_api_applies_the_rule_to_sessions_and_not_to_tokens(admin: User, rule: str) -> None:
    _, token = ApiToken.objects.create(user=admin)
    refused = _browser(admin).get("/api/v1/analyses/")
    script = Client(headers={"Authorization": f"Token {token}"})

    assert refused.status_code == 403
    assert "Your lab requires a second factor" in refused.json()["detail"]
    assert script.get("/api/v1/analyses/").status_code == 200
    assert script.get("/api/v1/members/").status_code == 200


def test_a_member_with_a_factor_is_not_redirected(admin: User, rule: str) -> None:
    _app_of(admin)
    client = _browser(admin)

    assert client.get("/").status_code == 200
    assert client.get("/api/v1/analyses/").status_code == 200


def test_recovery_codes_alone_are_not_a_factor(admin: User, rule: str) -> None:
    _app_of(admin)
    Authenticator.objects.filter(type="totp").delete()

    assert _browser(admin).get("/")["Location"] == ACCOUNT


def test_the_rule_costs_one_query_where_it_applies_and_none_elsewhere(
    grace: User, settings: Settings
) -> None:
    client = _browser(grace)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            client.get("/tokens/")
        return len(queries)

    before = count()
    settings.REQUIRE_MFA = "admins"
    assert count() == before
    _app_of(grace)
    settings.REQUIRE_MFA = "all"
    assert count() == before + 1


def test_an_admin_can_remove_lost_factors(admin: User, grace: User) -> None:
    _app_of(grace)
    client = _browser(admin)
    assert f"{MEMBERS}{grace.pk}/remove-factors/" in client.get(MEMBERS).content.decode()
    client.post(f"{MEMBERS}{grace.pk}/remove-factors/")

    assert not Authenticator.objects.exists()
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.what) == (admin, Action.FACTOR_REMOVED, "grace")
    assert entry.before == "authenticator app"
    sent = {"login": "grace", "password": PASSWORD}
    assert Client().post("/accounts/login/", sent)["Location"] == "/"
    client.post(f"{MEMBERS}{grace.pk}/remove-factors/")
    assert AuditEntry.objects.count() == 1


def test_admins_cannot_remove_their_own_factors_that_way(admin: User) -> None:
    _app_of(admin)
    client = _browser(admin)
    assert "remove-factors" not in client.get(MEMBERS).content.decode()
    shown = client.post(f"{MEMBERS}{admin.pk}/remove-factors/", follow=True).content.decode()

    assert "on your account page" in shown
    assert Authenticator.objects.count() == 2


def test_the_member_list_shows_who_has_a_factor(admin: User, grace: User) -> None:
    _app_of(grace)
    shown = _browser(admin).get(MEMBERS)

    assert [(user.username, user.has_factor) for user, _ in shown.context["members"]] == [
        ("ada", False),
        ("grace", True),
    ]


def test_a_command_removes_the_last_admins_factors(admin: User) -> None:
    _app_of(admin)
    out = StringIO()
    call_command("removefactors", "ada", stdout=out)

    assert "ada now signs in with the password only." in out.getvalue()
    assert not Authenticator.objects.exists()
    assert AuditEntry.objects.get().actor is None
    for name, said in (("ada", "has no second factor"), ("eve", "no member 'eve'")):
        with pytest.raises(CommandError, match=said):
            call_command("removefactors", name)
