"""The settings of notifications, as the environment gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from django.conf import settings
print(settings.PUBLIC_URL, settings.EMAIL_BACKEND.split(".")[-2], settings.EMAIL_HOST,
      settings.EMAIL_PORT, settings.EMAIL_USE_TLS, settings.DEFAULT_FROM_EMAIL,
      settings.EMAIL_TIMEOUT, *sorted(settings.WEBHOOK_HOSTS))
"""


def _settings(data: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "DJANGO_SETTINGS_MODULE": "memorymark_site.settings",
        "MEMORYMARK_DATA_DIR": str(data),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | variables,
        capture_output=True,
        text=True,
    )


def test_without_any_no_email_is_sent(tmp_path: Path) -> None:
    said = _settings(tmp_path, PORT="8080").stdout.split()
    assert said[:2] == ["http://127.0.0.1:8080", "dummy"]


def test_all_of_them(tmp_path: Path) -> None:
    done = _settings(
        tmp_path,
        MEMORYMARK_URL="https://lab.example/",
        EMAIL_URL="smtp+tls://ada:secret@mail.example:587",
        DEFAULT_FROM_EMAIL="mm@lab.example",
        MEMORYMARK_WEBHOOK_HOSTS="Chat.lab.example, 10.0.0.7",
    )
    assert done.stdout.split() == [
        "https://lab.example", "smtp", "mail.example", "587", "True", "mm@lab.example", "5",
        "10.0.0.7", "chat.lab.example",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("MEMORYMARK_URL", "lab.example", "MEMORYMARK_URL=lab.example is not a web address"),
        ("EMAIL_URL", "mail.example:25", "Invalid email schema"),
    ],
)
def test_a_wrong_one_ends_the_start_in_words(
    tmp_path: Path, name: str, value: str, why: str
) -> None:
    done = _settings(tmp_path, **{name: value})
    assert done.returncode != 0
    assert why in done.stderr
