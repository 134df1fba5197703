"""The environment is read and checked in one place, and all invalid values are named together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from memorymark_site.environment import (
    Environment,
    OidcSettings,
    WrongEnvironment,
    document,
    read,
)
from memorymark_site.operations.redaction import secrets_of
from memorymark_site.variable_types import is_safe

OIDC = {
    "MEMORYMARK_OIDC_ISSUER": "https://login.lab.example/realms/lab",
    "MEMORYMARK_OIDC_CLIENT_ID": "memorymark",
    "MEMORYMARK_OIDC_CLIENT_SECRET": "a secret of the client",
}


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("MEMORYMARK_HTTPS", "ture", "true or false"),
        ("MEMORYMARK_HUB", "n", "true or false"),
        ("MEMORYMARK_API_UNITS", "-1", "a whole number from 0"),
        ("MEMORYMARK_WORKERS", "0", "a whole number from 1 to 1000"),
        ("MEMORYMARK_KEEP_LOG_DAYS", "a week", "a whole number from 0 to 36500"),
        ("ENGINE_DEADLINE_SECONDS", "1.5", "a whole number from 1"),
        ("PORT", "65536", "a whole number from 1 to 65535"),
        ("LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        ("LOG_FORMAT", "xml", "one of lines, json"),
        ("MEMORYMARK_REQUIRE_MFA", "some", "one of none, admins, all"),
        ("MEMORYMARK_OIDC_NEW", "admin", "one of nobody, viewer, member"),
        ("MEMORYMARK_OIDC_ISSUER", "http://login.lab.example", "the provider's address"),
        ("MEMORYMARK_OIDC_ISSUER", "https://" + "x" * 200, "at most 200 characters"),
        ("MEMORYMARK_URL", "lab.example", "a web address such as"),
    ],
)
def test_an_invalid_value_is_named_with_what_is_allowed(name: str, value: str, takes: str) -> None:
    with pytest.raises(WrongEnvironment) as caught:
        read({name: value})
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{name}={value} is not valid: give ")
    assert takes in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "ada:hunter2@db/lab"),
        ("DATABASE_URL", "mysql://ada:hunter2@db/lab"),
        ("DATABASE_URL", "postgres://ada:hunter2@db:port/lab"),
        ("EMAIL_URL", "mail.example:25"),
        ("EMAIL_URL", "smtp://ada:hunter2@mail:port"),
    ],
)
@pytest.mark.filterwarnings(
    "error"
)  # the parser would warn with the whole value, including the password
def test_an_invalid_address_is_named_without_its_password(name: str, value: str) -> None:
    with pytest.raises(WrongEnvironment, match=f"^{name} is not valid: give .*user:password@") as e:
        read({name: value})
    assert "hunter2" not in str(e.value)


@pytest.mark.longer
def test_every_command_ends_with_a_line_per_invalid_variable(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    wrong = {"MEMORYMARK_HTTPS": "ture", "MEMORYMARK_WORKERS": "many"}
    for command in (
        ["manage.py", "migrate"],
        ["manage.py", "cluster"],
        ["-m", "gunicorn", "-c", "memorymark_site/gunicorn_conf.py", "memorymark_site.wsgi"],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=settings.BASE_DIR,
            env=kept | {"MEMORYMARK_DATA_DIR": str(tmp_path)} | wrong,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "MEMORYMARK_HTTPS=ture is not valid: give true or false",
            "MEMORYMARK_WORKERS=many is not valid: give a whole number from 1 to 1000",
        ]


def test_every_variable_is_optional_and_empty_means_unset() -> None:
    names = [str(field.alias) for field in Environment.model_fields.values()]
    assert read(dict.fromkeys(names, " ")) == read({})
    assert read({}).oidc is None


def test_lists_and_words_may_be_written_freely() -> None:
    found = read({"MEMORYMARK_HOSTS": "a.example, b.example", "LOG_LEVEL": "info", "DEBUG": "On"})
    assert (found.hosts, found.log_level, found.debug) == (("a.example", "b.example"), "INFO", True)


def test_three_variables_set_up_a_provider_for_existing_members() -> None:
    found = read(OIDC)
    assert found.oidc == OidcSettings(
        OIDC["MEMORYMARK_OIDC_ISSUER"],
        "memorymark",
        "a secret of the client",
        "single sign-on",
        "nobody",
    )
    assert "a secret" not in repr(found)
    assert "a secret" not in repr(found.oidc)
    assert "a secret of the client" in secrets_of(OIDC)


@pytest.mark.parametrize("name", OIDC)
def test_an_incomplete_provider_is_refused(name: str) -> None:
    with pytest.raises(WrongEnvironment, match=f"lacks {name}:"):
        read({key: value for key, value in OIDC.items() if key != name})


def test_passwords_cannot_be_switched_off_without_another_way_to_sign_in() -> None:
    with pytest.raises(WrongEnvironment, match="set MEMORYMARK_OIDC_ISSUER"):
        read({"MEMORYMARK_PASSWORD_SIGN_IN": "false"})
    assert not read(OIDC | {"MEMORYMARK_PASSWORD_SIGN_IN": "false"}).password_sign_in


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
    ],
)
def test_traffic_to_the_provider_must_be_encrypted(url: object, safe: bool) -> None:
    assert is_safe(url) is safe


def test_the_database_is_set_up_for_several_processes() -> None:
    options = read({}).database["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    postgres = read({"DATABASE_URL": "postgres://user:password@host/lab"}).database
    assert postgres["ENGINE"] == "django.db.backends.postgresql"


def test_nobody_waits_endlessly_for_postgresql() -> None:
    url = "postgres://user:password@host/lab"
    options = read({"DATABASE_URL": url}).database["OPTIONS"]
    assert options.items() >= {"connect_timeout": 5, "tcp_user_timeout": 10_000}.items()
    assert "lock_timeout" in options["options"]
    own = read({"DATABASE_URL": f"{url}?connect_timeout=30&sslmode=require"}).database["OPTIONS"]
    assert (int(own["connect_timeout"]), own["sslmode"]) == (30, "require")
    assert own["keepalives_idle"] == 5


def test_the_mail_server_is_set_by_one_variable() -> None:
    email = read({"EMAIL_URL": "smtp+tls://ada:secret@mail.example:587"}).email
    assert email["EMAIL_BACKEND"] == "django.core.mail.backends.smtp.EmailBackend"
    assert (email["EMAIL_HOST"], email["EMAIL_PORT"]) == ("mail.example", 587)
    assert email["EMAIL_USE_TLS"]
    assert "dummy" in read({}).email["EMAIL_BACKEND"]


def test_the_documented_list_matches_the_code() -> None:
    docs = settings.BASE_DIR / "docs"
    assert (docs / "settings.md").read_text() == document()
    known = {str(field.alias) for field in Environment.model_fields.values()}
    of_clients = {"MEMORYMARK_TOKEN", "MEMORYMARK_ALLOW_HTTP", "MEMORYMARK_OUTBOX"}
    for page in [
        *docs.glob("*.md"),
        settings.BASE_DIR / "README.md",
        settings.BASE_DIR / "SECURITY.md",
    ]:
        named = set(re.findall(r"\bMEMORYMARK_[A-Z_]+[A-Z]", page.read_text()))
        assert {name for name in named - known - of_clients if name != "MEMORYMARK_OIDC"} == set()
