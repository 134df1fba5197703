from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.notifications.webhook import new_secret
from memorymark_site.operations.redaction import HIDDEN, Redactor, secrets_of

SECRET = "correct-horse-battery"  # noqa: S105  # of these tests


@pytest.mark.parametrize(
    "text",
    [
        f"Internal Server Error: /setup/{SECRET}/",
        f"GET /shared/{SECRET}?page=2",
        f"GET /invitation/{SECRET}/",
        f"GET /accounts/reset/MQ/{SECRET}/",
        f"GET /accounts/sso/callback/?code={SECRET}&state={SECRET}",
        f"could not connect to postgres://ada:{SECRET}@db.lab/memorymark",
        f"postgres://ada:{SECRET}@x@db.lab/memorymark",
        f"smtp+tls://mail:{SECRET}@mail.lab:587",
        f"{{'Authorization': 'Bearer {SECRET}'}}",
        f"authorization: Token {SECRET}",
        f"password={SECRET}&next=/",
        f'{{"password1": "{SECRET}", "name": "ada"}}',
        f"{{'webhook_secret': '{SECRET}'}}",
        f"Cookie: sessionid={SECRET}; csrftoken={SECRET}",
        f"calling https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"calling https://discord.com/api/webhooks/1/{SECRET}",
    ],
)
def test_anything_that_looks_like_a_secret_is_redacted(text: str) -> None:
    said = Redactor()(text)
    assert SECRET not in said
    assert HIDDEN in said


def test_our_own_tokens_are_redacted_everywhere() -> None:
    secret = new_secret()
    said = Redactor()(f"signed with {secret} for mm_0123456789abcdef, thank you")
    assert said == f"signed with whsec_{HIDDEN} for mm_{HIDDEN}, thank you"


@pytest.mark.parametrize(
    "text",
    [
        "analysis 7: bert on a10, token classification, sequence length 128",
        "the password is too short",
        "GET /setup/ 404",
        "https://memorymark.lab.example:8000/analyses/7/",
        "MEMORYMARK_URL=https://lab.example is fine; see http://127.0.0.1:8000/health",
        "12:30:05 mm_per_s",
    ],
)
def test_harmless_lines_are_unchanged(text: str) -> None:
    assert Redactor()(text) == text


@given(st.text(min_size=6), st.text(), st.text())
def test_a_known_secret_is_always_redacted(secret: str, before: str, after: str) -> None:
    left = Redactor([secret])(f"{before}{secret}{after}")
    assert secret not in left.replace(HIDDEN, "") or secret in before + after


def test_the_secrets_of_a_process_come_from_its_environment() -> None:
    environment = {
        "PATH": "/usr/bin",
        "SECRET_KEY": "the-key",
        "DATABASE_URL": "postgres://ada:p%40ss-word@db/lab",
        "EMAIL_URL": "smtp://[broken",
        "HF_TOKEN": "hf_abcdef",
        "SOME_CLIENT_SECRET": "of-sign-in",
        "HTTPS_PROXY": "http://ada:of-proxy@proxy:3128",
        "TOKENIZERS_PARALLELISM": "harmless",
        "KEYBOARD": "harmless",
    }
    assert secrets_of(environment) == {
        "the-key",
        "postgres://ada:p%40ss-word@db/lab",
        "p%40ss-word",
        "p@ss-word",
        "smtp://[broken",
        "hf_abcdef",
        "of-sign-in",
        "of-proxy",
    }
