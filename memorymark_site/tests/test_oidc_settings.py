from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from memorymark_site.oidc_settings import OidcSettings, from_environment, is_safe
from memorymark_site.operations.logs.redaction import secrets_of

ALL = {
    "MEMORYMARK_OIDC_ISSUER": "https://login.lab.example/realms/lab",
    "MEMORYMARK_OIDC_CLIENT_ID": "memorymark",
    "MEMORYMARK_OIDC_CLIENT_SECRET": "a secret of the client",
}


def test_three_variables_are_enough_and_then_nobody_new_gets_in() -> None:
    found = from_environment(ALL)

    assert found == OidcSettings(
        ALL["MEMORYMARK_OIDC_ISSUER"], "memorymark", "a secret of the client", "single sign-on",
        "nobody",
    )  # fmt: skip
    assert "a secret" not in repr(found)


@pytest.mark.parametrize("environment", [{}, dict.fromkeys(ALL, ""), {"MEMORYMARK_URL": "x"}])
def test_without_them_there_is_no_provider(environment: dict[str, str]) -> None:
    assert from_environment(environment) is None


@pytest.mark.parametrize("name", ALL)
def test_one_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"lacks {name};"):
        from_environment({key: value for key, value in ALL.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ISSUER", "login.lab.example", "not the address of a provider"),
        ("ISSUER", "http://login.lab.example", "not the address of a provider"),
        ("ISSUER", "https://" + "x" * 200, "at most 200"),
        ("NEW", "admin", "Admins are made by admins"),
        ("NEW", "everybody", "one of nobody, viewer, member"),
    ],
)
def test_what_is_wrong_is_refused_in_words(name: str, value: str, said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=said):
        from_environment(ALL | {f"MEMORYMARK_OIDC_{name}": value})


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://login.example", True),
        ("http://localhost:9000/x", True),
        ("http://127.0.0.1:9000", True),
        ("http://127.0.0.1.evil.example", False),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("http://[", False),
        (None, False),
        (7, False),
    ],
)
def test_what_is_sent_there_stays_secret(url: object, safe: bool) -> None:
    assert is_safe(url) is safe


def test_the_clients_secret_is_hidden_in_logs() -> None:
    assert "a secret of the client" in secrets_of(ALL)
