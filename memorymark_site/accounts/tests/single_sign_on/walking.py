"""Walks a browser to the provider and back, and tells who is signed in."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts import invitations
from memorymark_site.accounts.roles import Role
from memorymark_site.accounts.tests.fake_provider import FakeProvider

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

START, LINK, UNLINK = "/accounts/sso/", "/account/sso/link/", "/account/sso/unlink/"
LOGIN, ACCOUNT = "/accounts/login/", "/account/"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user
GRACE = {"email": "grace@lab.example", "email_verified": True, "preferred_username": "grace"}


def let_in(settings: Settings, new: str) -> None:
    settings.OIDC = replace(settings.OIDC, new=new)


def leads_to(leaving: _MonkeyPatchedWSGIResponse) -> str:
    """Where the sign-in button redirects to."""
    assert leaving.status_code == 200, leaving.content.decode()
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', leaving.content.decode())
    assert found, leaving.content.decode()
    return html.unescape(found[1])


def come_back(client: Client, idp: FakeProvider, **sent: str) -> _MonkeyPatchedWSGIResponse:
    """Press the button, sign in with the provider, and come back."""
    return client.get(idp.sign_in(leads_to(client.post(START, sent))))


def invited(email: str, *, role: Role = Role.MEMBER, takes: str | None = None) -> User:
    """A member invited at this address, who may since have changed it."""
    root = User.objects.filter(username="root").first() or make_user("root", is_staff=True)
    invitation, _ = invitations.invite(root, role, email)
    name = f"member{User.objects.count()}"
    return invitations.accept(invitation, name, email if takes is None else takes, PASSWORD)


def is_in(client: Client) -> bool:
    return client.get("/").status_code == 200


def who(client: Client) -> str:
    return str(client.get(ACCOUNT).context["user"].get_username())


def text_of(response: _MonkeyPatchedWSGIResponse) -> str:
    return html.unescape(response.content.decode())
