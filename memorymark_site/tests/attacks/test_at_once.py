"""The same thing many times at once: what counts or works once must not be overtaken.

On PostgreSQL (``make test-postgres``), as SQLite lets one write after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client

from analyses.tests.factories import make_user
from memorymark_site.accounts import invitations, members, throttle
from memorymark_site.accounts.roles import Role
from memorymark_site.accounts.tests.test_second_factor import code_of
from memorymark_site.tests.attacks.serving import PASSWORD, credentials

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]

MANY = 6


def _at_once(*doing: Callable[[], bool]) -> int:
    """How many of these succeed that are begun in one moment, each with its own connection."""
    ready = Barrier(len(doing))
    succeeded = []

    def run(do: Callable[[], bool]) -> None:
        try:
            ready.wait()
            if do():
                succeeded.append(do)
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=(do,)) for do in doing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(succeeded)


def test_guesses_beyond_the_limit() -> None:
    limit = throttle.of_account("ada")
    for _ in range(limit.most - 1):
        assert not throttle.take([limit])
    assert _at_once(*[lambda: not throttle.take([limit])] * MANY) <= 1


def test_one_code_of_an_app_in_many_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """allauth remembers it within one process; the site has several, as if it remembered none."""
    monkeypatch.setattr(TOTP, "_mark_code_used", lambda *_: True)
    secret = generate_totp_secret()
    TOTP.activate(make_user("ada"), secret)
    browsers = [Client() for _ in range(MANY - 1)]
    for browser in browsers:
        browser.post("/accounts/login/", credentials("ada", PASSWORD))
    code = code_of(secret)

    def signs_in(browser: Client) -> Callable[[], bool]:
        return lambda: browser.post("/accounts/login/code/", {"code": code}).status_code == 302

    assert _at_once(*map(signs_in, browsers)) == 1


def test_one_invitation_accepted_by_many() -> None:
    """Each has found it open before the first one accepts."""
    _, key = invitations.invite(make_user("root", is_staff=True), Role.ADMIN)

    def accepts(name: str) -> Callable[[], bool]:
        found = invitations.find(key)
        assert found is not None

        def accept() -> bool:
            try:
                invitations.accept(found, name, "", PASSWORD)
            except invitations.InvitationEnded:
                return False
            return True

        return accept

    assert _at_once(*[accepts(f"eve{number}") for number in range(MANY)]) == 1
    assert User.objects.count() == 2


def test_admins_who_put_each_other_out() -> None:
    """Each sees that another one is left."""
    admins = [make_user(f"admin{number}", is_staff=True) for number in range(MANY)]

    def puts_out(number: int) -> Callable[[], bool]:
        by, whom = admins[number], admins[(number + 1) % MANY]

        def put_out() -> bool:
            try:
                return members.deactivate(by, whom)
            except members.LastAdmin:
                return False

        def demote() -> bool:
            try:
                return members.set_role(by, whom, Role.VIEWER)
            except members.LastAdmin:
                return False

        return demote if number % 2 else put_out

    assert _at_once(*map(puts_out, range(MANY))) == MANY - 1
    assert User.objects.filter(is_staff=True, is_active=True).count() == 1
