"""Passkeys: added, used alone and after the password, and refused if invalid."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.test import Client

from analyses.tests.factories import make_user
from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.tests.authenticator import HOST, Passkey

LOGIN, CODE, ALONE = "/accounts/login/", "/accounts/login/code/", "/accounts/login/passkey/"
ADD, CODES = "/account/passkeys/add/", "/account/recovery-codes/"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user


def _client() -> Client:
    return Client(headers={"Host": HOST})


def _signed_in(name: str) -> Client:
    client = _client()
    client.post(LOGIN, {"login": name, "password": PASSWORD})
    return client


def _data(client: Client, address: str) -> dict[str, Any]:
    shown = client.get(address).content.decode()
    found = re.search(r'<script id="passkey-data" type="application/json">(.+?)</script>', shown)
    assert found, shown
    data: dict[str, Any] = json.loads(found[1])
    return data


def _add(client: Client, passkey: Passkey, **fields: str) -> Any:
    credential = passkey.create(_data(client, ADD)["creation_options"])
    return client.post(ADD, {"name": "laptop", "credential": credential, **fields})


def _asked(client: Client) -> dict[str, Any]:
    data: dict[str, Any] = client.get(ALONE, headers={"Accept": "application/json"}).json()
    options: dict[str, Any] = data["request_options"]
    return options


def _is_in(client: Client) -> bool:
    return client.get("/").status_code == 200


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


@pytest.fixture
def here(ada: User) -> Client:
    return _signed_in("ada")


@pytest.fixture
def passkey(here: Client) -> Passkey:
    passkey = Passkey()
    assert _add(here, passkey, passwordless="on")["Location"] == CODES
    return passkey


def test_a_passkey_is_required_after_the_password(here: Client, passkey: Passkey) -> None:
    client = _signed_in("ada")
    assert not _is_in(client)
    answer = passkey.get(_data(client, CODE)["request_options"])

    assert client.post(CODE, {"credential": answer})["Location"] == "/"
    assert _is_in(client)
    assert "Passkey laptop" in here.get("/account/").content.decode()


def test_a_passkey_signs_in_alone(here: Client, passkey: Passkey) -> None:
    client = _client()
    sent = {"credential": passkey.get(_asked(client)), "next": "/history/"}

    assert client.post(ALONE, sent)["Location"] == "/history/"
    assert _is_in(client)


def test_a_passkey_signs_in_while_passwords_are_locked(here: Client, passkey: Passkey) -> None:
    for _ in range(10):
        _client().post(LOGIN, {"login": "ada", "password": "wrong"})
    client = _client()
    assert client.post(LOGIN, {"login": "ada", "password": PASSWORD}).status_code == 429

    assert client.post(ALONE, {"credential": passkey.get(_asked(client))})["Location"] == "/"
    assert _is_in(client)


def test_signing_in_alone_requires_user_verification(here: Client) -> None:
    found = Passkey(is_unlocked=False)
    assert _add(here, found)["Location"] == CODES
    client = _client()

    client.post(ALONE, {"credential": found.get(_asked(client))})
    assert not _is_in(client)
    client.post(LOGIN, {"login": "ada", "password": PASSWORD})
    answer = found.get(_data(client, CODE)["request_options"])
    assert client.post(CODE, {"credential": answer}).status_code == 302
    assert _is_in(client)


def test_a_passkey_without_user_verification_does_not_sign_in_alone(here: Client) -> None:
    assert _add(here, Passkey(is_unlocked=False), passwordless="on").status_code == 200
    assert not Authenticator.objects.exists()


def test_a_signature_for_another_site_or_challenge_is_refused(here: Client) -> None:
    phished = Passkey(origin="https://memorymark.example")
    assert _add(here, phished).status_code == 200
    good = Passkey()
    _add(here, good, passwordless="on")
    client = _client()
    old = _asked(client)
    _asked(client)
    client.post(ALONE, {"credential": good.get(old)})

    assert not _is_in(client)


def test_another_members_passkey_is_refused(here: Client, passkey: Passkey) -> None:
    make_user("eve")
    eves = Passkey()
    _add(_signed_in("eve"), eves, passwordless="on")
    client = _signed_in("ada")
    client.post(CODE, {"credential": eves.get(_data(client, CODE)["request_options"])})

    assert not _is_in(client)


def test_an_invalid_signature_is_refused(here: Client, passkey: Passkey) -> None:
    client = _client()
    answer = json.loads(passkey.get(_asked(client)))
    signature = answer["response"]["signature"]
    answer["response"]["signature"] = signature[:-4] + (
        "AAAA" if signature[-4:] != "AAAA" else "BBBB"
    )

    assert client.post(ALONE, {"credential": json.dumps(answer)})["Location"] == LOGIN
    assert not _is_in(client)


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "x",
        "[]",
        "1",
        "null",
        "{}",
        '"text"',
        '{"id": "x"}',
        '{"id": "eA", "rawId": "eA", "type": "public-key", "response": []}',
        '{"id": "eA", "rawId": "eA", "type": "public-key", "response": {"userHandle": 1}}',
        '{"id": "eA", "rawId": "eA", "type": "public-key", "response": {"clientDataJSON": "e30",'
        ' "authenticatorData": "eA", "signature": "eA", "userHandle": "\\u0663"}}',
    ],
)
def test_malformed_responses_are_refused_with_a_message(
    here: Client, passkey: Passkey, sent: str
) -> None:
    guest, half = _client(), _signed_in("ada")
    _asked(guest)
    _data(half, CODE)

    assert guest.post(ALONE, {"credential": sent})["Location"] == LOGIN
    assert half.post(CODE, {"credential": sent}).status_code == 200
    _data(here, ADD)
    assert here.post(ADD, {"credential": sent}).status_code == 200
    assert here.post("/account/confirm/passkey/", {"credential": sent}).status_code == 302
    assert not _is_in(guest)
    assert not _is_in(half)
    assert Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN).count() == 1


def test_a_deactivated_members_passkey_is_refused(ada: User, passkey: Passkey) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)
    client = _client()
    answer = client.post(ALONE, {"credential": passkey.get(_asked(client))}, follow=True)

    assert "Your account is deactivated" in answer.content.decode()
    assert not _is_in(client)


def test_only_its_owner_can_rename_and_remove_a_passkey(here: Client, passkey: Passkey) -> None:
    pk = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).pk
    make_user("eve")
    eve = _signed_in("eve")
    for what in ("rename", "remove"):
        assert eve.post(f"/account/passkeys/{pk}/{what}/", {"name": "hers"}).status_code == 404

    here.post(f"/account/passkeys/{pk}/rename/", {"name": "blue <key>"})
    assert "Passkey blue &lt;key&gt;" in here.get("/account/").content.decode()
    assert here.post(f"/account/passkeys/{pk}/remove/")["Location"] == "/account/"
    assert not Authenticator.objects.exists()
    assert list(AuditEntry.objects.order_by("id").values_list("action", "before", "after")) == [
        (Action.FACTOR_ADDED, "", "passkey laptop"),
        (Action.RECOVERY_CODES_MADE, "", ""),
        (Action.FACTOR_REMOVED, "passkey blue <key>", ""),
    ]


def test_a_passkey_confirms_your_identity(here: Client, passkey: Passkey) -> None:
    session = here.session
    session.pop("account_authentication_methods")
    session.save()
    address = f"/account/confirm/passkey/?next={ADD}"
    answer = passkey.get(_data(here, address)["request_options"])

    assert here.get(ADD)["Location"].startswith("/account/confirm/?next=")
    assert here.post(address, {"credential": answer})["Location"] == ADD
    assert here.get(ADD).status_code == 200


@pytest.mark.longer
def test_the_number_of_started_sign_ins_is_limited(db: None) -> None:
    for _ in range(150):
        assert _client().get(ALONE, headers={"Accept": "application/json"}).status_code == 200
    refused = _client().get(ALONE, headers={"Accept": "application/json"})

    assert refused.status_code == 429
    assert Client(REMOTE_ADDR="192.0.2.9", headers={"Host": HOST}).get(ALONE).status_code == 302


@pytest.mark.parametrize(
    ("host", "is_secure", "said"),
    [
        ("localhost:8000", False, "Add a passkey"),
        ("127.0.0.1:8000", False, "http://localhost:8000/account/passkeys/add/"),
        ("[::1]:8000", False, "http://localhost:8000/account/passkeys/add/"),
        ("testserver", False, "by its name over HTTPS"),
        ("testserver", True, "Add a passkey"),
        ("127.0.0.1", True, "t work at this address"),
    ],
)
def test_where_passkeys_cannot_work_the_page_says_where_to_go(
    ada: User, host: str, is_secure: bool, said: str
) -> None:
    client = Client(headers={"Host": host})
    client.post(LOGIN, {"login": "ada", "password": PASSWORD}, secure=is_secure)
    shown = client.get(ADD, secure=is_secure).content.decode()

    assert said in shown
    assert ("passkey-data" in shown) == (said == "Add a passkey")
    login = Client(headers={"Host": host}).get(LOGIN, secure=is_secure).content.decode()
    assert ("Sign in with a passkey" in login) == (said == "Add a passkey")
