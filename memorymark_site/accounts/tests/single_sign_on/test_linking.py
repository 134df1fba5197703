"""Linking an identity on the account page, and the lab's settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.tests.fake_provider import FakeProvider
from memorymark_site.accounts.tests.single_sign_on.walking import (
    ACCOUNT,
    LINK,
    LOGIN,
    PASSWORD,
    START,
    UNLINK,
    come_back,
    is_in,
    leads_to,
    let_in,
    text_of,
    who,
)

if TYPE_CHECKING:
    pass


def _link(client: Client, idp: FakeProvider) -> str:
    return text_of(client.get(idp.sign_in(leads_to(client.post(LINK))), follow=True))


def test_a_member_can_link_and_unlink(here: Client, idp: FakeProvider) -> None:
    idp.claims["email_verified"] = False  # it finds no account any longer
    assert "You can now sign in with Lab login" in _link(here, idp)
    other = Client()
    assert come_back(other, idp).status_code == 302
    assert who(other) == "ada"

    assert "unlinked" in text_of(here.post(UNLINK, follow=True))
    assert come_back(Client(), idp).status_code == 403
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == [Action.SIGN_ON_LINKED, Action.SIGN_ON_UNLINKED]


def test_linking_needs_a_recent_sign_in(here: Client, idp: FakeProvider) -> None:
    session = here.session
    session.pop("account_authentication_methods")
    session.save()

    for address in (LINK, UNLINK):
        assert here.post(address)["Location"].startswith("/account/confirm/?next=")


def test_an_identity_belongs_to_one_account(here: Client, idp: FakeProvider) -> None:
    _link(here, idp)
    make_user("eve")
    eve = Client()
    eve.post(LOGIN, {"login": "eve", "password": PASSWORD})

    assert "linked to another account" in _link(eve, idp)
    assert SocialAccount.objects.get().user.username == "ada"


def test_a_link_started_by_one_member_cannot_be_finished_by_another(
    here: Client, idp: FakeProvider
) -> None:
    make_user("eve")
    there = idp.sign_in(leads_to(here.post(LINK)))
    session = here.session
    eve = User.objects.get(username="eve")
    session["_auth_user_id"], session["_auth_user_hash"] = str(eve.pk), eve.get_session_auth_hash()
    session.save()

    assert here.get(there).status_code == 403
    assert not SocialAccount.objects.exists()


def test_a_member_without_a_password_stays_linked_and_confirms_with_the_provider(
    client: Client, idp: FakeProvider, settings: Settings, ada: User
) -> None:
    let_in(settings, "member")
    come_back(client, idp)

    assert "your only way to sign in" in text_of(client.post(UNLINK, follow=True))
    session = client.session
    session.pop("account_authentication_methods")
    session.save()
    assert client.get("/account/app/")["Location"] == "/accounts/sso/?next=%2Faccount%2Fapp%2F"
    idp.claims["auth_time"] = int(time.time()) - 3600
    assert come_back(client, idp, next="/account/app/").status_code == 502
    assert idp.sent("prompt") == "login"
    idp.claims["auth_time"] = int(time.time())
    assert come_back(client, idp, next="/account/app/")["Location"] == "/account/app/"
    assert client.get("/account/app/").status_code == 200


def test_with_passwords_switched_off_none_works(
    client: Client, ada: User, settings: Settings
) -> None:
    settings.PASSWORD_SIGN_IN = False
    shown = text_of(client.get(LOGIN))

    assert "Sign in with Lab login" in shown
    assert 'type="password"' not in shown
    assert client.post(LOGIN, {"login": "ada", "password": PASSWORD}).status_code == 403
    assert client.get("/accounts/forgotten/").status_code == 403
    assert not is_in(client)


def test_without_a_provider_single_sign_on_does_not_appear(
    here: Client, client: Client, settings: Settings
) -> None:
    settings.OIDC = None

    assert client.get(START).status_code == client.post(START).status_code == 404
    assert client.get("/accounts/sso/callback/").status_code == 404
    assert here.post(LINK).status_code == 404
    assert START not in text_of(client.get(LOGIN))
    assert "Single sign-on" not in text_of(here.get(ACCOUNT))


def test_the_policy_keeps_forms_on_the_site(client: Client, idp: FakeProvider) -> None:
    leaving = client.post(START)

    assert "form-action 'self'" in leaving["Content-Security-Policy"]
    assert idp.url in leads_to(leaving)
