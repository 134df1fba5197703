"""The account that an identity signs in to, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts import members
from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.roles import Role, role_of
from memorymark_site.accounts.tests.fake_provider import SECRET, FakeProvider
from memorymark_site.accounts.tests.single_sign_on.walking import (
    come_back,
    invited,
    is_in,
    let_in,
    text_of,
    who,
)

if TYPE_CHECKING:
    pass


def test_a_member_invited_at_the_verified_address_is_signed_in_and_linked(
    client: Client, idp: FakeProvider
) -> None:
    grace = invited("Grace@lab.example")

    assert come_back(client, idp, next="/history/")["Location"] == "/history/"
    assert who(client) == grace.username
    linked = SocialAccount.objects.get()
    assert (linked.provider, linked.uid, linked.extra_data) == (idp.url, "0001", {})
    assert not SocialToken.objects.exists()
    assert AuditEntry.objects.filter(action=Action.SIGN_ON_LINKED, actor=grace).exists()
    assert grace.sign_ins.count() == 1
    idp.claims["email"] = "other@lab.example"  # from now on the subject counts
    again = Client()
    assert come_back(again, idp).status_code == 302
    assert who(again) == grace.username


def test_the_site_sends_what_the_protocol_requires(client: Client, idp: FakeProvider) -> None:
    invited("grace@lab.example")
    come_back(client, idp)

    assert idp.sent("response_type") == "code"
    assert set(str(idp.sent("scope")).split()) == {"openid", "profile", "email"}
    assert idp.sent("code_challenge_method") == "S256"
    assert idp.sent("redirect_uri") == "http://testserver/accounts/sso/callback/"
    assert len(str(idp.sent("nonce"))) >= 32
    assert idp.asked["client_secret"] == SECRET


@pytest.mark.parametrize("verified", [False, None, "false", 0, "yes"])
def test_an_unverified_address_finds_no_account(
    client: Client, idp: FakeProvider, settings: Settings, verified: object
) -> None:
    let_in(settings, "member")
    invited("grace@lab.example")
    idp.claims["email_verified"] = verified
    count = User.objects.count()
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert "You have no account here" in text_of(answer)
    assert not is_in(client)
    assert User.objects.count() == count


def test_an_address_the_member_entered_finds_no_account(client: Client, idp: FakeProvider) -> None:
    """Otherwise members could put someone else's address into their own account."""
    invited("mallory@lab.example", takes="grace@lab.example")
    make_user("ada", email="grace@lab.example")
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert "not linked to this sign-in" in text_of(answer)
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("claimed", ["m\u0131kes@lab.example", "mi\u212aes@lab.example"])
def test_an_address_with_lookalike_letters_finds_no_account(
    client: Client, idp: FakeProvider, claimed: str
) -> None:
    """A dotless i and the kelvin sign: uppercased, PostgreSQL treats them as i and k."""
    invited("mikes@lab.example")
    idp.claims["email"] = claimed
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert not is_in(client)


@pytest.mark.parametrize("typed", ["m\u0131kes@lab.example", "mi\u212aes@lab.example"])
def test_an_address_with_lookalike_letters_finds_no_invitation(
    client: Client, idp: FakeProvider, typed: str
) -> None:
    invited(typed, takes="mikes@lab.example")
    idp.claims["email"] = "mikes@lab.example"

    assert come_back(client, idp).status_code == 403


def test_an_invited_member_is_found_even_if_others_enter_the_same_address(
    client: Client, idp: FakeProvider
) -> None:
    invited("mallory@lab.example", takes="grace@lab.example")
    grace = invited("grace@lab.example")
    come_back(client, idp)

    assert who(client) == grace.username


def test_an_admin_is_never_found_by_address(client: Client, idp: FakeProvider) -> None:
    invited("grace@lab.example", role=Role.ADMIN)

    assert come_back(client, idp).status_code == 403
    assert not is_in(client)


def test_a_linked_account_is_not_found_by_address_for_another_identity(
    client: Client, idp: FakeProvider
) -> None:
    invited("grace@lab.example")
    come_back(client, idp)
    idp.claims["sub"] = "0002"
    answer = come_back(Client(), idp)

    assert answer.status_code == 403
    assert SocialAccount.objects.get().uid == "0001"


def test_an_unknown_person_is_refused(client: Client, idp: FakeProvider) -> None:
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert "Ask a lab admin for an invitation" in text_of(answer)
    assert not User.objects.exists()


def test_no_one_joins_before_the_first_admin(
    client: Client, idp: FakeProvider, settings: Settings
) -> None:
    """Their account would close the setup page and leave the lab without an admin."""
    let_in(settings, "member")
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert "not set up yet" in text_of(answer)
    assert not User.objects.exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_a_new_person_gets_an_account_if_the_lab_allows_it(
    client: Client, idp: FakeProvider, settings: Settings, role: Role
) -> None:
    let_in(settings, role.value)
    make_user("Grace")
    come_back(client, idp)
    user = User.objects.get(email="grace@lab.example")

    assert who(client) == user.username == "grace-2"
    assert role_of(user) is role
    assert not user.has_usable_password()
    entry = AuditEntry.objects.get(action=Action.MEMBER_JOINED)
    assert (entry.actor, entry.after) == (user, role.value)
    assert come_back(Client(), idp).status_code == 302
    assert User.objects.count() == 2


@pytest.mark.parametrize(
    ("wished", "named"),
    [
        ("grace.hopper@navy.example", "grace.hopper"),
        ("<script>alert(1)</script>", "script-alert-1-script"),
        ("../..", "member"),
        ("Ω" * 200, "Ω" * 30),
        (None, "grace"),
    ],
)
def test_a_new_account_gets_a_valid_name(
    client: Client, idp: FakeProvider, settings: Settings, wished: str | None, named: str
) -> None:
    make_user("root", is_staff=True)
    let_in(settings, "viewer")
    idp.claims["preferred_username"] = wished
    come_back(client, idp)

    user = User.objects.get(is_staff=False)
    assert user.username == named
    user.full_clean(exclude=["password"])


@pytest.mark.parametrize("was_linked", [True, False])
def test_a_deactivated_member_gets_neither_in_nor_a_new_account(
    client: Client, idp: FakeProvider, settings: Settings, was_linked: bool
) -> None:
    let_in(settings, "member")
    grace = invited("grace@lab.example")
    if was_linked:
        come_back(Client(), idp)
    members.deactivate(User.objects.get(username="root"), grace)
    answer = come_back(client, idp)

    assert answer.status_code == 403
    assert "deactivated" in text_of(answer)
    assert not is_in(client)
    assert User.objects.count() == 2


def test_a_second_factor_is_required_here_too(client: Client, idp: FakeProvider) -> None:
    grace = invited("grace@lab.example")
    Authenticator.objects.create(user=grace, type="totp", data={"secret": "A" * 32})

    assert come_back(client, idp)["Location"] == "/accounts/login/code/"
    assert not is_in(client)


def test_the_same_subject_of_another_issuer_is_someone_else(
    client: Client, idp: FakeProvider, settings: Settings
) -> None:
    grace = make_user("grace")
    SocialAccount.objects.create(user=grace, provider="https://old.example", uid="0001")

    assert come_back(client, idp).status_code == 403
