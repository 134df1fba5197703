from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings


def _setting(expression: str, data_dir: Path, **environment: str) -> str:
    program = (
        "import django; from django.conf import settings; django.setup(); "
        f"print({expression}, end='')"
    )
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=settings.BASE_DIR,
        env=kept
        | {
            "DJANGO_SETTINGS_MODULE": "memorymark_site.settings",
            "MEMORYMARK_DATA_DIR": str(data_dir),
        }
        | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.longer
def test_a_first_start_makes_a_private_key_and_the_next_keeps_it(tmp_path: Path) -> None:
    data = tmp_path / "new" / "folder"
    first = _setting("settings.SECRET_KEY", data)

    assert len(first) >= 50
    assert (data / "secret-key").stat().st_mode & 0o777 == 0o600
    assert _setting("settings.SECRET_KEY", data) == first
    assert [file.name for file in data.iterdir()] == ["secret-key"]


@pytest.mark.longer
def test_the_environment_sets_the_security_settings(tmp_path: Path) -> None:
    given = {
        "SECRET_KEY": "mine",
        "MEMORYMARK_HOSTS": "lab.example",
        "MEMORYMARK_HTTPS": "true",
        "MEMORYMARK_SHARE_LINKS": "false",
        "MEMORYMARK_URL": "https://lab.example/",
        "EMAIL_URL": "smtp://mail.example:25",
        "MEMORYMARK_WEBHOOK_HOSTS": "Chat.lab.example",
    }
    said = _setting(
        "(settings.SECRET_KEY, settings.ALLOWED_HOSTS[-1], settings.SESSION_COOKIE_SECURE, "
        "settings.SHARE_LINKS, settings.PUBLIC_URL, settings.EMAIL_HOST, settings.WEBHOOK_HOSTS)",
        tmp_path,
        **given,
    )
    assert said == str(
        (
            "mine",
            "lab.example",
            True,
            False,
            "https://lab.example",
            "mail.example",
            frozenset({"chat.lab.example"}),
        )
    )


@pytest.mark.longer
def test_sqlite_lets_site_and_worker_write_concurrently(tmp_path: Path) -> None:
    mode = _setting(
        "__import__('django.db').db.connection.cursor().execute('PRAGMA journal_mode').fetchone()",
        tmp_path,
    )
    assert mode == "('wal',)"
    options = settings.DATABASES["default"].get("OPTIONS", {})
    assert options.get("transaction_mode", "IMMEDIATE") == "IMMEDIATE"


def test_two_first_starts_agree_on_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memorymark_site import secret_key

    path = tmp_path / "secret-key"
    link = os.link

    def the_other_was_first(source: str, target: Path) -> None:
        path.write_text("the other's")
        link(source, target)

    monkeypatch.setattr(os, "link", the_other_was_first)
    assert secret_key.read_or_create(path) == "the other's"
    assert [file.name for file in tmp_path.iterdir()] == ["secret-key"]


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    from memorymark_site import secret_key

    path = tmp_path / "secret-key"
    path.touch()
    with pytest.raises(RuntimeError, match="delete it"):
        secret_key.read_or_create(path)


def test_the_queues_retry_is_longer_than_any_task() -> None:
    queue = settings.Q_CLUSTER

    assert queue["timeout"] > settings.ENGINE_DEADLINE_SECONDS
    assert queue["retry"] >= 3 * queue["timeout"]
