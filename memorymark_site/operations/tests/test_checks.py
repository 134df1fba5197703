"""Wrong settings are reported at the start, with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from pytest_django import Settings

from memorymark_site.environment import OidcSettings, read
from memorymark_site.operations import checks

PRODUCTION = {
    "MEMORYMARK_HTTPS": "true",
    "MEMORYMARK_HOSTS": "memorymark.lab.example",
    "MEMORYMARK_URL": "https://memorymark.lab.example",
    "SECRET_KEY": "jE3n0tq-Uo7vV5m2wT9yB4x_H8sL1dKcR6gZaQpXfNiWbYeMc4Ou2Ss9Tt1Ww8",
    "DATABASE_URL": "postgres://memorymark:secret@db.lab.example/memorymark",
    "EMAIL_URL": "smtp+tls://user:password@mail.lab.example:587",
    "DEFAULT_FROM_EMAIL": "memorymark@lab.example",
    "MEMORYMARK_METRICS_TOKEN": "0123456789abcdef01234567",
    "LOG_FORMAT": "json",
}
"""As docs/operations.md has them."""


def _check(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.run(
        [sys.executable, "manage.py", "check", *arguments],
        cwd=django_settings.BASE_DIR,
        env=kept | {"MEMORYMARK_DATA_DIR": str(folder)} | variables,
        capture_output=True,
        text=True,
    )


@pytest.fixture(autouse=True)
def _environment(settings: Settings) -> None:
    settings.ENVIRONMENT = read({})


def _ids(*, deployed: bool = False) -> list[str]:
    found = checks.check_deployment() if deployed else checks.check_settings()
    assert all(message.hint for message in found)
    return [message.id.removeprefix("memorymark.") for message in found if message.id]


@pytest.mark.longer
def test_the_documented_production_settings_are_clean(tmp_path: Path) -> None:
    done = _check(tmp_path, "--deploy", "--fail-level", "WARNING", **PRODUCTION)
    assert done.returncode == 0, done.stderr
    documented = (Path(django_settings.BASE_DIR) / "docs" / "operations.md").read_text()
    assert [name for name in PRODUCTION if f"{name}=" not in documented] == []


@pytest.mark.slow
def test_a_lab_of_one_machine_needs_no_settings(tmp_path: Path) -> None:
    done = _check(tmp_path, "--fail-level", "WARNING")
    assert done.returncode == 0, done.stderr


def test_a_data_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _check(tmp_path / "file" / "folder")
    assert done.returncode != 0
    assert "name another with MEMORYMARK_DATA_DIR" in done.stderr.strip().splitlines()[-1]


def test_an_engine_that_cannot_run_is_reported(settings: Settings) -> None:
    assert _ids() == []
    settings.ENGINE_COMMAND = ["/no/such/python", "-m", "engine"]
    assert _ids() == ["E001"]


def test_an_unwritable_folder_is_reported(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != settings.DATA_DIR)
    assert "E002" in _ids()


def test_https_without_a_host_name_is_reported(settings: Settings) -> None:
    settings.SESSION_COOKIE_SECURE = True
    assert _ids() == ["E003"]
    settings.NAMED_HOSTS = ["lab.example"]
    assert _ids() == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("EMAIL_URL", "smtp://mail:25", "W004"), ("DEFAULT_FROM_EMAIL", "mm@lab.example", "W005")],
)
def test_an_incomplete_email_setup_is_reported(
    settings: Settings, name: str, value: str, expected: str
) -> None:
    settings.ENVIRONMENT = read({name: value})
    assert _ids() == [expected]


def test_weak_keys_and_wrong_links_are_reported(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    settings.METRICS_TOKEN = "x" * 15
    settings.NAMED_HOSTS = ["lab.example"]
    settings.PUBLIC_URL = "http://127.0.0.1:8000"
    monkeypatch.setattr(type(connection), "vendor", "postgresql", raising=False)
    assert _ids(deployed=True) == ["W006", "W007", "W008"]
    settings.METRICS_TOKEN = ""
    settings.PUBLIC_URL = "https://lab.example"
    settings.ENVIRONMENT = read({"SECRET_KEY": "given"})
    assert _ids(deployed=True) == []


def test_single_sign_on_without_https_is_reported(settings: Settings) -> None:
    settings.OIDC = OidcSettings("https://login.lab.example", "memorymark", "x", "Lab", "nobody")
    assert "W009" in _ids(deployed=True)
    settings.SESSION_COOKIE_SECURE = True
    assert "W009" not in _ids(deployed=True)


def test_an_engine_that_cannot_run_as_its_account_is_an_error(settings: Settings) -> None:
    given = read({"MEMORYMARK_ENGINE_USER": "nobody-of-this-name"})
    settings.ENGINE_USER = given.engine_user
    (error,) = (one for one in checks.check_settings() if one.id == "memorymark.E011")
    assert error.is_serious()
    assert "this machine has no account nobody-of-this-name" in error.msg


def test_only_root_starts_engines_as_someone_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENGINE_USER = "nobody"
    for user, errors in ((0, []), (1000, ["memorymark.E012"])):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert [error.id for error in checks._engine_user()] == errors
