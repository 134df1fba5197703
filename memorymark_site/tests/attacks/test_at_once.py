"""Race conditions: limits and one-time links must hold under simultaneous requests.

On PostgreSQL (``make test-postgres``), since SQLite serializes writes.
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
    pytest.mark.database,
    pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]

MANY = 6


def _at_once(*doing: Callable[[], bool]) -> int:
    """How many calls succeed when started together, each with its own connection."""
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


def test_guesses_cannot_exceed_the_limit() -> None:
    limit, _ = throttle.of_account("ada", "192.0.2.1")
    for _ in range(limit.most - 1):
        assert not throttle.take([limit])
    assert _at_once(*[lambda: not throttle.take([limit])] * MANY) <= 1


def test_one_app_code_only_works_in_one_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """allauth remembers used codes per process; here, as with several, it remembers none."""
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


def test_one_invitation_only_admits_one_person() -> None:
    """Each has seen it as open before the first one accepts."""
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


def test_admins_cannot_all_remove_each_other() -> None:
    """Each sees that another one remains."""
    admins = [make_user(f"admin{number}", is_staff=True) for number in range(MANY)]

    def removes(number: int) -> Callable[[], bool]:
        by, whom = admins[number], admins[(number + 1) % MANY]

        def remove() -> bool:
            try:
                return members.deactivate(by, whom)
            except members.LastAdmin:
                return False

        def demote() -> bool:
            try:
                return members.set_role(by, whom, Role.VIEWER)
            except members.LastAdmin:
                return False

        return demote if number % 2 else remove

    assert _at_once(*map(removes, range(MANY))) == MANY - 1
    assert User.objects.filter(is_staff=True, is_active=True).count() == 1
