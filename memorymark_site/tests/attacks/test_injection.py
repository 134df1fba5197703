"""Text that another program interprets: pages, spreadsheets, logs, headers."""

from __future__ import annotations

import csv
import io
import logging
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core import mail
from django.db import models
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from analyses.models import Analysis, Node, Status
from analyses.models.notifications import Channel
from analyses.notifications import channels
from analyses.pages.history import labels, views
from analyses.pages.history.columns import COLUMNS
from analyses.tests.factories import add_log, make_analysis, make_notification, make_user
from memorymark_site.accounts.tests.mailing import wait_for_mail
from memorymark_site.operations.log import JsonFormatter, LineFormatter
from memorymark_site.tests.attacks.serving import Site
from memorymark_site.tests.test_who_may_what import PAGES, Lab, To

pytestmark = pytest.mark.database

FORGED = "2026-11-20 12:00:00,000 ERROR memorymark: all of it is gone"


def test_a_log_line_forged_through_an_address(site: Site) -> None:
    site.ask("GET", "/nowhere%0d%0a" + FORGED.replace(" ", "%20"))
    site.ask("GET", "/nowhere%1b%5b2J")
    log = site.log()
    assert "nowhere" in log
    assert [line for line in log.splitlines() if line.startswith(FORGED)] == []
    assert "\x1b" not in log  # it would clear the reader's terminal


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028"])
@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_a_log_line_forged_through_a_name(formatter: logging.Formatter, end: str) -> None:
    """In a message, and in the text of an exception."""
    try:
        raise ValueError(f"no such GPU: a10{end}{FORGED}")
    except ValueError as error:
        record = logging.LogRecord(
            "lab", logging.ERROR, "", 1, f"a10{end}{FORGED}", (), (type(error), error, None)
        )
    said = formatter.format(record)
    assert "all of it is gone" in said
    assert not any(line.startswith(FORGED) for line in said.splitlines())


# Pages: every stored text is hostile, and every page is checked

HOSTILE = "'\"><b onclick=x>"
OUT_OF_A_SCRIPT = "</script><script>x"
FORMULA = "=cmd|' /C calc'!A0"
OURS = ("accounts", "analyses", "auth")
NOT_TYPED = {
    "digest", "password", "session_key", "token_key", "key", "salt", "workload_key", "gpu", "query",
    "source", "measured_gpu", "precision", "optimizer", "codename", "app_label", "webhook_url",
    "software", "failure_code", "pushed_id", "question", "claim", "token", "request_id",
}  # fmt: skip
"""Names of fields that hold no text of a person or a machine: digests, choices, addresses."""


class _Page(HTMLParser):
    """Records what a browser would run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.runs += [f"{tag} {name}" for name in values if name.startswith("on")]
        for name in ("href", "src", "action", "formaction", "xlink:href", "hx-get", "hx-post"):
            address = values.get(name, "").strip().lower()
            if address.startswith(("javascript:", "vbscript:", "data:text")):
                self.runs.append(f"{tag} {name}={address}")
        if tag == "script" and not values.get("src") and values.get("type") != "application/json":
            self.runs.append("inline script")


def _hostile_json(value: Any) -> Any:
    """The same value with all names and sentences made hostile."""
    if isinstance(value, dict):
        return {name: _hostile_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hostile_json(inner) for inner in value]
    return HOSTILE if isinstance(value, str) and " " in value else value


def _poison(text: str) -> int:
    """Put a text into every free-text column of every row; returns the number of columns."""
    poisoned = 0
    for model in apps.get_models():
        if model._meta.app_label not in OURS or model._meta.label == "auth.Permission":
            continue
        for field in model._meta.concrete_fields:
            is_text = isinstance(field, models.CharField | models.TextField)
            if not is_text or field.choices or field.name in NOT_TYPED or field.primary_key:
                continue
            rows = model._base_manager.all()
            if not rows.exists():
                continue
            poisoned += 1
            for row in rows:
                unique = f"{text}{row.pk}" if field.unique or field.name == "name" else text
                models.QuerySet(model).filter(pk=row.pk).update(
                    **{field.name: unique[: field.max_length]}
                )
    return poisoned


@pytest.fixture(scope="module")
def module_lab(module_lab: Lab) -> Lab:
    """The lab of the role matrix, with one of everything that members can write."""
    lab = module_lab
    olga, analysis = lab.people["owner"], lab.analysis
    labels.write_labels(analysis, ["tag"], "note", olga)
    add_log(analysis, "a line of the log")
    make_analysis(olga, Status.FAILED, failure_reason="it failed")
    running = make_analysis(olga, Status.RUNNING, node="node")
    add_log(running, "a line of the log")
    Node.objects.create(name="node", gpu_name="a GPU", heartbeat_at=timezone.now(), problem="hot")
    channels.save_choices(olga, {"by_email": False, "webhook_url": "https://hook.example/"})
    make_notification(analysis, Channel.WEBHOOK, last_error="no")
    views.save_view(lab.people["admin"], "view", "q=x", is_shared=True)
    for stored in Analysis.objects.exclude(result=None):
        stored.result = _hostile_json(stored.result)
        stored.environment = {"torch": HOSTILE, HOSTILE: "1"}
        stored.save()
    return lab


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "hostile"),
    [
        ("admin", HOSTILE),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("admin", OUT_OF_A_SCRIPT),
                ("owner", HOSTILE),
                ("owner", OUT_OF_A_SCRIPT),
                ("viewer", HOSTILE),
            )
        ),
    ],
)
def test_stored_text_with_html(lab: Lab, name: str, hostile: str) -> None:
    """Stored XSS through every free-text column, on every page."""
    assert _poison(hostile) > 25
    shown = 0
    for route, methods in PAGES.items():
        if methods.get("get", To.NOBODY) is To.NOBODY or route in ("accounts/logout/",):
            continue
        answer = lab.by_session(name).get(lab.address(route))
        if answer.status_code != 200 or "html" not in answer["Content-Type"]:
            continue
        text = b"".join(answer).decode()
        page = _Page()
        page.feed(text)
        assert page.runs == [], route
        assert hostile not in text, route
        shown += escape(hostile) in text
    assert shown > 8, "it is shown, as text"


def test_text_in_an_svg(lab: Lab) -> None:
    """An SVG opened on its own is a page."""
    _poison(HOSTILE)
    both = f"{lab.analysis.pk},{lab.second.pk}"
    answer = lab.by_session("admin").get(f"/compare/bars.svg?ids={both}")
    assert answer["Content-Type"] == "image/svg+xml"
    assert "<b onclick" not in answer.content.decode()
    assert "<script" not in answer.content.decode()


@pytest.mark.parametrize(
    "text", [FORMULA, "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\uff1d1+1"]
)
def test_text_that_a_spreadsheet_runs(lab: Lab, text: str) -> None:
    """In every CSV file and every column."""
    _poison(text)
    columns = "&".join(f"columns={column.key}" for column in COLUMNS)
    for path in (
        f"/history/export.csv?{columns}", "/savings/analyses.csv", "/savings/totals.csv",
        "/audit/audit.csv",
    ):  # fmt: skip
        lines = b"".join(lab.by_session("admin").get(path)).decode()
        cells = [cell for row in csv.reader(io.StringIO(lines)) for cell in row]
        assert cells
        for cell in cells:
            risky = cell.strip()[:1] in tuple("=+-@\uff1d\uff0b\uff0d\uff20")
            assert not risky or _is_number(cell), (path, cell)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    ["{{ 7|add:7 }}", "{% debug %}", "${7*7}", "%(password)s", "{0.__class__}"],
)
def test_text_that_is_a_template(lab: Lab, text: str) -> None:
    """It is shown as written, on the page and in the message about it."""
    olga = lab.people["owner"]
    labels.write_labels(lab.analysis, ["x"], text, olga)
    page = lab.by_session("owner").get(f"/{lab.analysis.pk}/").content.decode()
    assert escape(text) in page


@pytest.mark.longer
@pytest.mark.parametrize(
    "text",
    [
        "' OR '1'='1'; DROP TABLE auth_user; --",
        *(pytest.param(text, marks=pytest.mark.slow) for text in ("\\", "%_", "\0\u2019*) OR (")),
    ],
)
def test_a_search_with_sql(lab: Lab, text: str) -> None:
    """In each filter of the history, the savings and the audit log."""
    admin = lab.by_session("admin")
    count = Analysis.objects.count()
    for path, names in {
        "/history/": ("q", "model", "gpu", "owner", "tag", "sort", "columns", "status", "page"),
        "/savings/": ("model", "gpu", "owner", "sort", "since", "group"),
        "/audit/": ("actor", "action", "q", "since", "until", "before"),
        "/api/v1/analyses/": ("model", "gpu", "owner", "ordering", "fields", "cursor", "tag"),
        "/admin/auth/user/": ("q", "o", "p", "e"),
    }.items():
        for name in names:
            answer = admin.get(path, {name: text})
            assert answer.status_code in (200, 302, 400, 404), (path, name)
    assert Analysis.objects.count() == count
    assert User.objects.count() == len(lab.people)


def test_a_name_that_ends_the_header_of_an_email(db: None, settings: Settings) -> None:
    """A line end in an address or subject would add the attacker's recipients."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    victim = make_user("alan", email="alan@lab.example")
    for address in (
        "alan@lab.example\nBcc: evil@evil.example", "alan@lab.example,evil@evil.example",
        "evil@evil.example\r\nalan@lab.example", "alan@lab.example\0",
    ):  # fmt: skip
        Client().post("/accounts/forgotten/", {"email": address})
    wait_for_mail()
    sent = [address for message in mail.outbox for address in message.recipients()]
    assert set(sent) <= {victim.email}
    assert all("evil" not in str(message.message()) for message in mail.outbox)
