from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from memorymark_site.accounts import management, throttle
from memorymark_site.accounts.models import Action, ApiToken, AuditEntry

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def _call(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def _type(monkeypatch: pytest.MonkeyPatch, *passwords: str) -> None:
    answers = iter(passwords)
    monkeypatch.setattr(management, "getpass", lambda _prompt: next(answers))


def test_a_member_is_added_with_a_typed_password(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, "Correct-horse-9", "Correct-horse-9")
    _call("addmember", "grace")

    assert client.login(username="grace", password="Correct-horse-9")
    assert not User.objects.get().is_superuser


@pytest.mark.parametrize(
    ("options", "role"), [([], "member"), (["--viewer"], "viewer"), (["--admin"], "admin")]
)
def test_the_message_has_the_new_members_role(options: list[str], role: str) -> None:
    assert _call("addmember", "grace", "--generate", *options).startswith(f"grace is now {role}.")


def test_a_generated_password_is_printed_and_works(client: Client) -> None:
    password = _call("addmember", "grace", "--generate", "--admin").split()[-1]

    assert client.login(username="grace", password=password)
    assert User.objects.get().is_superuser


@pytest.mark.parametrize(
    ("name", "passwords", "reason"),
    [
        ("grace", ("Correct-horse-9", "correct-horse-9"), "differ"),
        ("grace", ("short", "short"), "too short"),
        ("not a name", ("Correct-horse-9", "Correct-horse-9"), "valid username"),
        ("taken", ("Correct-horse-9", "Correct-horse-9"), "has this name"),
        ("Taken", ("Correct-horse-9", "Correct-horse-9"), "looks like it"),
    ],
)
def test_invalid_input_is_reported(
    monkeypatch: pytest.MonkeyPatch, name: str, passwords: tuple[str, str], reason: str
) -> None:
    User.objects.create_user("taken")
    _type(monkeypatch, *passwords)
    with pytest.raises(CommandError, match=reason):
        _call("addmember", name)

    assert User.objects.count() == 1


def test_a_new_password_is_typed_and_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.create_user("ada", password="Former-horse-9")
    limits = throttle.of_account("ada", "127.0.0.1")
    assert not any(throttle.take(limits) for _ in range(10))
    _type(monkeypatch, "Correct-horse-9", "Correct-horse-9")
    _call("changepassword", "ada")

    answer = client.post("/accounts/login/", {"login": "ada", "password": "Correct-horse-9"})
    assert answer.status_code == 302, "the wrong ones are forgotten"
    entry = AuditEntry.objects.get(action=Action.PASSWORD_CHANGED)
    assert (entry.actor_name, entry.what) == ("", "ada")


@pytest.mark.parametrize(
    ("name", "passwords", "reason"),
    [
        ("nobody", (), "no member"),
        ("ada", ("Correct-horse-9", "correct-horse-9"), "differ"),
        ("ada", ("short", "short"), "too short"),
    ],
)
def test_an_invalid_password_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, passwords: tuple[str, ...], reason: str
) -> None:
    User.objects.create_user("ada", password="Former-horse-9")
    _type(monkeypatch, *passwords)
    with pytest.raises(CommandError, match=reason):
        _call("changepassword", name)

    assert User.objects.get().check_password("Former-horse-9")
    assert not AuditEntry.objects.exists()


def test_creating_an_admin_is_always_logged() -> None:
    with pytest.raises(CommandError, match="addmember NAME --admin"):
        _call("createsuperuser")

    assert not User.objects.exists()


def test_a_token_is_printed_once_and_only_its_digest_is_stored(client: Client) -> None:
    User.objects.create_user("ada")
    token = _call("token", "ada", "--label", "nightly runs")

    stored = ApiToken.objects.get()
    assert (stored.name, stored.scope) == ("nightly runs", "write")
    assert token not in (stored.digest, stored.token_key)
    headers = {"Authorization": f"Token {token}"}
    assert client.get("/api/v1/models/", headers=headers).status_code == 200


def test_a_token_may_be_read_only() -> None:
    User.objects.create_user("ada")
    _call("token", "ada", "--scope", "read")

    assert ApiToken.objects.get().scope == "read"


def test_a_token_expires_on_time(client: Client) -> None:
    User.objects.create_user("ada")
    token = _call("token", "ada", "--days", "7")
    headers = {"Authorization": f"Token {token}"}

    assert client.get("/api/v1/models/", headers=headers).status_code == 200
    ApiToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert client.get("/api/v1/models/", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "arguments", [("nobody",), ("ada", "--days", "0"), ("ada", "--scope", "all")]
)
def test_invalid_input_creates_no_token(arguments: tuple[str, ...]) -> None:
    User.objects.create_user("ada")
    with pytest.raises(CommandError):
        _call("token", *arguments)

    assert not ApiToken.objects.exists()
