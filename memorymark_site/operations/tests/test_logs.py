"""Log lines have their context in both formats, and no secrets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from analyses.jobs import worker
from analyses.models import Analysis, NotificationChoices, Status
from analyses.pages.analysis import sharing
from analyses.tests.factories import make_analysis, make_user
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import ApiToken
from memorymark_site.operations import log
from memorymark_site.operations.log import (
    ContextFilter,
    JsonFormatter,
    LineFormatter,
)

FIELDS = {"model": "bert", "gpu": "a10", "current_batch_size": 16}


class Logged:
    """Collects everything logged from DEBUG on, as JSON lines."""

    def __init__(self) -> None:
        self._stream = StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(JsonFormatter())
        self.handler.addFilter(ContextFilter())

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def logged() -> Iterator[Logged]:
    found = Logged()
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(found.handler)
    root.setLevel(logging.DEBUG)
    yield found
    root.removeHandler(found.handler)
    root.setLevel(level)


def _record(message: str, *arguments: object, **fields: Any) -> logging.LogRecord:
    return logging.LogRecord("lab", logging.WARNING, "", 1, message, arguments, None, **fields)


def test_a_json_line_has_its_fields() -> None:
    record = _record("two\nlines of %s", "ä")
    record.request_id, record.analysis_id = "r1", 7
    line = JsonFormatter().format(record)
    assert "\n" not in line
    body = json.loads(line)
    assert body.pop("time").endswith("+00:00")
    assert body.pop("process") == os.getpid()
    assert body == {
        "level": "warning",
        "logger": "lab",
        "message": "two\nlines of ä",
        "analysis_id": 7,
        "request_id": "r1",
    }


def test_a_plain_text_line_has_its_context() -> None:
    record = _record("gone")
    assert LineFormatter().format(record).endswith("WARNING lab: gone")
    record.request_id, record.analysis_id = "r1", 7
    assert LineFormatter().format(record).endswith("gone [analysis_id=7 request_id=r1]")


@pytest.mark.parametrize("formatter", [JsonFormatter, LineFormatter])
def test_a_traceback_has_no_secret_either(formatter: Callable[..., logging.Formatter]) -> None:
    try:
        raise OSError("no route to postgres://ada:pass-word@db/lab and hunter2-key")
    except OSError:
        record = logging.LogRecord("lab", logging.ERROR, "", 1, "x", (), sys.exc_info())
    said = formatter(["hunter2-key"]).format(record)
    assert "no route to" in said
    assert "OSError" in said
    assert "pass-word" not in said
    assert "hunter2-key" not in said


@pytest.mark.longer
@pytest.mark.parametrize("style", ["json", pytest.param("lines", marks=pytest.mark.slow)])
def test_the_environment_sets_format_and_level(style: str) -> None:
    program = "import django, logging; django.setup(); logging.getLogger('lab').error('gone')"
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "memorymark_site.settings",
        "LOG_FORMAT": style,
    }
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stderr
    if style == "json":
        assert json.loads(said)["message"] == "gone"
    else:
        assert said.endswith("ERROR lab: gone\n")


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        ("abc-123", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("two words", False),
        ('"}{', False),
        ("", False),
    ],
)
def test_a_request_has_an_id(client: Client, db: None, sent: str, is_kept: bool) -> None:
    response = client.get("/accounts/login/", headers={"X-Request-ID": sent})
    given = response["X-Request-ID"]
    assert (given == sent) == is_kept
    assert 1 <= len(given) <= 64


def test_a_request_id_is_stored_with_the_analysis_and_logged(
    client: Client, member: User, logged: Logged
) -> None:
    client.force_login(member)
    response = client.post(
        "/api/v1/analyses/",
        json.dumps(FIELDS),
        content_type="application/json",
        headers={"X-Request-ID": "from-the-proxy"},
    )
    assert response.status_code == 201, response.content
    analysis = Analysis.objects.get()
    assert analysis.request_id == "from-the-proxy"
    mine = [line for line in logged.lines if line.get("request_id") == "from-the-proxy"]
    said = {line["message"].split(":")[0]: line.get("analysis_id") for line in mine}
    assert said[f"submitted by member {member.pk}"] == analysis.pk
    assert said["POST /api/v1/analyses/"] is None
    assert log.request_id() == ""


def test_worker_and_engine_log_the_request_id(
    member: User, fake_engine: Callable[[str], list[str]], logged: Logged
) -> None:
    fake_engine("success")
    analysis = make_analysis(member, request_id="from-the-web")
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED
    mine = [line for line in logged.lines if line.get("analysis_id") == analysis.pk]
    assert {line["request_id"] for line in mine} == {"from-the-web"}
    said = [line["message"] for line in mine]
    assert any(message.startswith("taken") for message in said)
    assert any(message.startswith("the engine: ") for message in said)
    assert "ended: AnalysisResult" in said
    assert log.analysis_id() is None


def test_no_secret_is_logged_anywhere_in_the_site(client: Client, db: None, logged: Logged) -> None:
    """At DEBUG, including SQL: setup, login, token, share link and webhook."""
    setup = invitations.new_setup_link()
    assert setup
    password = "correct horse battery staple 1"  # noqa: S105  # of this test
    client.get(f"/setup/{setup}/")
    client.post(
        f"/setup/{setup}/",
        {"username": "ada", "email": "", "password1": password, "password2": password},
    )
    ada = User.objects.get(username="ada")
    client.post("/accounts/login/", {"login": "ada", "password": password})
    client.post("/accounts/login/", {"login": "ada", "password": password + "!"})
    _, token = ApiToken.objects.create(user=ada, name="script")
    api = Client()
    for sent in (token, f"{token}x"):
        api.get("/api/v1/analyses/", headers={"Authorization": f"Token {sent}"})
    _, shared = sharing.create_link(make_analysis(make_user("grace"), Status.SUCCEEDED), ada, 1)
    api.get(f"/shared/{shared}/")
    client.post(
        "/notifications/",
        {"by_webhook": "on", "webhook_url": "https://93.184.216.34/1", "only_after_seconds": "1"},
    )
    logging.getLogger("analyses").error("lost: %r", {"token": token, "at": f"/shared/{shared}/"})

    chosen = NotificationChoices.objects.get(member=ada)
    session = client.cookies["sessionid"].value
    secrets = {setup, password, token, shared, session, chosen.webhook_secret, settings.SECRET_KEY}
    assert len(logged.lines) >= 8
    assert [secret for secret in secrets if secret in logged.text] == []
