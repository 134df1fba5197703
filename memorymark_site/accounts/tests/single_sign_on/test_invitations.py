"""Joining through the provider with an invitation link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.roles import Role, role_of
from memorymark_site.accounts.tests.fake_provider import FakeProvider
from memorymark_site.accounts.tests.single_sign_on.walking import (
    come_back,
    invited,
    is_in,
    leads_to,
    text_of,
    who,
)

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse


def _invitation(role: Role = Role.MEMBER) -> str:
    """The address of an invitation for anyone who has it."""
    root = User.objects.filter(username="root").first() or make_user("root", is_staff=True)
    return f"/invitation/{invitations.invite(root, role)[1]}/"


def _join(client: Client, idp: FakeProvider, address: str) -> _MonkeyPatchedWSGIResponse:
    return client.get(idp.sign_in(leads_to(client.post(f"{address}sso/"))))


@pytest.mark.parametrize("role", list(Role))
def test_an_invited_person_joins_with_the_provider(
    client: Client, idp: FakeProvider, role: Role
) -> None:
    idp.claims["email_verified"] = False  # the link is enough
    address = _invitation(role)

    assert f'action="{address}sso/"' in text_of(client.get(address))
    assert _join(client, idp, address)["Location"] == "/"
    user = User.objects.get(username=who(client))
    assert (user.username, user.email, role_of(user)) == ("grace", "", role)
    assert not user.has_usable_password()
    assert come_back(Client(), idp).status_code == 302
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == [Action.MEMBER_INVITED, Action.MEMBER_JOINED, Action.SIGN_ON_LINKED]


def test_an_invitation_admits_one_identity(client: Client, idp: FakeProvider) -> None:
    address = _invitation()
    late = Client()
    begun = leads_to(late.post(f"{address}sso/"))
    assert _join(client, idp, address).status_code == 302
    assert Client().post(f"{address}sso/").status_code == 403

    idp.claims["sub"] = "0002"
    answer = late.get(idp.sign_in(begun))
    assert answer.status_code == 403
    assert "was revoked or was already used" in text_of(answer)
    assert not is_in(late)
    assert User.objects.count() == 2


def test_an_existing_member_does_not_use_up_an_invitation(
    client: Client, idp: FakeProvider
) -> None:
    invited("grace@lab.example")
    come_back(client, idp)
    address = _invitation(Role.ADMIN)
    again = Client()
    _join(again, idp, address)

    assert who(again) == who(client)
    assert not User.objects.get(username=who(again)).is_staff
    assert Client().get(address).status_code == 200


def test_without_passwords_joining_needs_the_provider(
    client: Client, idp: FakeProvider, settings: Settings
) -> None:
    settings.PASSWORD_SIGN_IN = False
    address = _invitation()
    answers = {"username": "eve", "password1": "Another-horse-9", "password2": "Another-horse-9"}

    assert 'type="password"' not in text_of(client.get(address))
    assert client.post(address, answers).status_code == 403
    assert _join(client, idp, address)["Location"] == "/"
