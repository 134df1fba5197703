"""Claims of a provider, or someone in its place, that must not be trusted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from memorymark_site.accounts.tests.fake_provider import CLIENT, SECRET, FakeProvider
from memorymark_site.accounts.tests.single_sign_on.walking import (
    GRACE,
    LOGIN,
    START,
    come_back,
    invited,
    is_in,
    leads_to,
    text_of,
)

if TYPE_CHECKING:
    pass


def _refused(client: Client, idp: FakeProvider, said: str, status: int = 502) -> None:
    invited("grace@lab.example")
    answer = come_back(client, idp)

    assert answer.status_code == status, text_of(answer)
    assert said in text_of(answer)
    assert not is_in(client)
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"aud": [CLIENT, "other"], "azp": "other"},
        {"azp": "other"},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"iat": int(time.time()) + 3600},
        {"sub": None},
    ],
)
def test_an_invalid_claim_is_refused(
    client: Client, idp: FakeProvider, wrong: dict[str, Any]
) -> None:
    idp.claims |= wrong
    _refused(client, idp, "invalid answer")


def test_a_token_signed_with_another_key_is_refused(client: Client, idp: FakeProvider) -> None:
    idp.signs_with = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _refused(client, idp, "invalid answer")


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_without_a_public_key_signature_is_refused(
    client: Client, idp: FakeProvider, algorithm: str
) -> None:
    idp.algorithm, idp.signs_with = algorithm, None if algorithm == "none" else SECRET * 2
    _refused(client, idp, "invalid answer")


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://login.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ],
)
def test_a_discovery_document_of_another_site_is_refused_before_redirecting(
    client: Client, idp: FakeProvider, described: dict[str, Any]
) -> None:
    idp.described = described
    answer = client.post(START)

    assert answer.status_code in (401, 502)
    assert "invalid answer" in text_of(answer)


@pytest.mark.parametrize(
    "answers",
    [
        (400, '{"error": "invalid_grant"}'),
        (200, '{"access_token": "x"}'),
        (200, '{"access_token": "x", "id_token": 7}'),
        (200, '{"access_token": "x", "id_token": "no.token.at-all"}'),
        (200, "not JSON"),
        (200, "[]"),
        (500, ""),
    ],
)
def test_an_invalid_response_is_reported(
    client: Client, idp: FakeProvider, answers: tuple[int, str]
) -> None:
    idp.answers = answers
    _refused(client, idp, "Lab login")


def test_an_unreachable_provider_is_reported(client: Client, idp: FakeProvider) -> None:
    begun = leads_to(client.post(START))
    there = idp.sign_in(begun)
    idp.end()

    for answer in (client.post(START), client.get(there)):
        assert answer.status_code == 502
        assert "Lab login is not responding" in text_of(answer)
    assert client.get(LOGIN).status_code == 200


def test_an_error_from_the_provider_is_reported(client: Client, idp: FakeProvider) -> None:
    for error, said in (("access_denied", "you cancelled"), ("x", "refused the sign-in")):
        there = idp.sign_in(leads_to(client.post(START))).replace("code=a-code", f"error={error}")
        answer = client.get(there)

        assert answer.status_code == 401
        assert said in text_of(answer)


def test_a_sign_in_not_started_here_is_refused(client: Client, idp: FakeProvider) -> None:
    """Otherwise a link could sign you in to its sender's account without your knowing."""
    invited("grace@lab.example")
    there = idp.sign_in(leads_to(client.post(START)))
    victim = Client()

    for address in (there, there.replace("state=", "state=x"), "/accounts/sso/callback/"):
        answer = victim.get(address)
        assert answer.status_code == 401
        assert "started in another browser" in text_of(answer)
    assert not is_in(victim)
    assert client.get(there).status_code == 302
    assert Client().get(there).status_code == 401


def test_viewing_the_page_starts_nothing(client: Client, idp: FakeProvider) -> None:
    shown = text_of(client.get(START, {"next": "/history/"}))

    assert 'value="/history/"' in shown
    assert "refresh" not in shown
    assert Client(enforce_csrf_checks=True).post(START).status_code == 403
    assert 'name="next"' not in text_of(client.get(START, {"next": "https://evil.example/"}))


def test_an_address_from_userinfo_counts_for_the_same_subject(
    client: Client, idp: FakeProvider
) -> None:
    invited("grace@lab.example")
    idp.claims, idp.userinfo = {}, GRACE | {"sub": "0001"}

    assert come_back(client, idp).status_code == 302


def test_userinfo_on_another_subject_is_refused(client: Client, idp: FakeProvider) -> None:
    idp.claims, idp.userinfo = {}, GRACE | {"sub": "0002"}
    _refused(client, idp, "invalid answer")
