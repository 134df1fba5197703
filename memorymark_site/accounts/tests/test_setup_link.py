from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import SetupLink

pytestmark = pytest.mark.django_db

GOOD = {
    "username": "ada",
    "email": "",
    "password1": "Correct-horse-9",
    "password2": "Correct-horse-9",
}


def _address() -> str:
    token = invitations.new_setup_link()
    assert token is not None
    return f"/setup/{token}/"


def test_the_link_creates_the_first_admin_and_signs_in(client: Client) -> None:
    address = _address()

    assert client.get(address).status_code == 200
    response = client.post(address, GOOD)
    assert (response.status_code, response["Location"]) == (302, "/")
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, admin.is_staff) == ("ada", True, True)
    assert admin.check_password("Correct-horse-9")
    assert client.get("/").status_code == 200


def test_the_link_works_once(client: Client) -> None:
    address = _address()
    client.post(address, GOOD)

    for response in (client.get(address), client.post(address, GOOD | {"username": "eve"})):
        assert response.status_code == 404
        assert b"already set up" in response.content
    assert User.objects.count() == 1


@pytest.mark.parametrize("token", ["wrong", "x" * 500, "%FF", "\u0663"])
def test_a_wrong_token_opens_nothing(client: Client, token: str) -> None:
    _address()
    response = client.post(f"/setup/{token}/", GOOD)

    assert response.status_code == 404
    assert b"when the site last started" in response.content
    assert not User.objects.exists()


def test_a_new_start_replaces_the_link(client: Client) -> None:
    old, new = _address(), _address()

    assert client.get(old).status_code == 404
    assert client.get(new).status_code == 200


def test_only_one_of_two_simultaneous_submissions_becomes_admin(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have passed the check when the first account is created."""
    address = _address()
    use = invitations.use_setup_link

    def after_the_other(link: SetupLink, *answers: str) -> User:
        use(link, "eve", "", "Correct-horse-8")
        return use(link, *answers)

    monkeypatch.setattr(invitations, "use_setup_link", after_the_other)
    assert client.post(address, GOOD).status_code == 404
    assert User.objects.get().username == "eve"
    assert "_auth_user_id" not in client.session


def test_an_old_link_is_useless_once_there_is_a_member() -> None:
    token = invitations.new_setup_link()
    assert token is not None
    link = invitations.find_setup_link(token)
    assert link is not None
    User.objects.create_user("made-otherwise")

    with pytest.raises(invitations.SetupClosed):
        invitations.use_setup_link(link, "eve", "", "Correct-horse-8")
    assert SetupLink.objects.exists()  # the whole transaction was rolled back


def test_the_token_itself_is_not_stored() -> None:
    token = invitations.new_setup_link()

    assert token is not None
    assert len(token) >= 32
    assert token not in SetupLink.objects.get().digest


@pytest.mark.parametrize(
    "wrong",
    [
        {"username": ""},
        {"username": "a b"},
        {"password2": "different-9"},
        {"password1": "short", "password2": "short"},
        {"password1": "1234567890", "password2": "1234567890"},
        {"password1": "password", "password2": "password"},
        {"email": "not an address"},
    ],
)
def test_mistakes_are_reported_and_the_link_still_works(
    client: Client, wrong: dict[str, str]
) -> None:
    address = _address()
    response = client.post(address, GOOD | wrong)

    assert response.status_code == 200
    assert response.context["form"].errors
    assert not User.objects.exists()
    assert client.post(address, GOOD).status_code == 302


def test_the_form_needs_the_csrf_token() -> None:
    assert Client(enforce_csrf_checks=True).post(_address(), GOOD).status_code == 403


def _welcome() -> str:
    out = StringIO()
    call_command("welcome", address="http://127.0.0.1:8107", stdout=out)
    return out.getvalue()


def test_the_first_start_prints_a_link_that_works(client: Client) -> None:
    said = _welcome()
    link = said.strip().splitlines()[-1].strip()

    assert "http://127.0.0.1:8107/" in said
    assert link.startswith("http://127.0.0.1:8107/setup/")
    assert client.get(link.removeprefix("http://127.0.0.1:8107")).status_code == 200


def test_later_starts_only_print_the_address() -> None:
    User.objects.create_user("ada")
    said = _welcome()

    assert "http://127.0.0.1:8107/" in said
    assert "setup" not in said
    assert not SetupLink.objects.exists()
