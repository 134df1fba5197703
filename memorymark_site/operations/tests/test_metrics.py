from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import pytest
import yaml
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries, Settings

from analyses.jobs import lab_metrics
from analyses.models import Analysis, Delivery, Node, Push, Status
from analyses.tests.factories import make_analysis, make_notification, make_user
from memorymark_site.operations import prometheus
from memorymark_site.operations.prometheus import FOLDER
from memorymark_site.operations.site_metrics import note_backup

pytestmark = pytest.mark.database

TOKEN = "s3cret-of-the-scraper"  # noqa: S105  # of these tests
Samples = dict[tuple[str, str], float]


@pytest.fixture
def scrape(settings: Settings, db: None) -> Client:
    """A client that sends the token the site has."""
    settings.METRICS_TOKEN = TOKEN
    return Client(headers={"Authorization": f"Bearer {TOKEN}"})


def _samples(text: str) -> Samples:
    """The scraped samples by name and label."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("memorymark_") and not sample.name.endswith("_bucket")
    }


def test_without_a_configured_token_there_is_no_metrics_page(client: Client, db: None) -> None:
    assert client.get("/metrics").status_code == 404


@pytest.mark.parametrize("sent", ["", "Bearer wrong", f"Token {TOKEN}", f"Bearer {TOKEN}x"])
def test_metrics_require_the_token(scrape: Client, sent: str) -> None:
    response = Client().get("/metrics", headers={"Authorization": sent})
    assert response.status_code == 401
    assert b"memorymark_analyses" not in response.content
    assert TOKEN.encode() not in response.content


def test_metrics_describe_the_lab(scrape: Client) -> None:
    now = timezone.now()
    ada = make_user("ada")
    waiting = make_analysis(ada)
    Analysis.objects.filter(pk=waiting.pk).update(queued_at=now - timedelta(minutes=5))
    for seconds in (10, 20):
        done = make_analysis(ada, Status.SUCCEEDED)
        Analysis.objects.filter(pk=done.pk).update(
            queued_at=now - timedelta(seconds=seconds + 5),
            started_at=now - timedelta(seconds=seconds),
            finished_at=now,
        )
    old = make_analysis(ada, Status.FAILED, finished_at=now - timedelta(hours=2))
    stored = make_analysis(ada, Status.SUCCEEDED, started_at=None)
    pushed = make_analysis(ada, Status.SUCCEEDED, started_at=now - timedelta(hours=16))
    Push.objects.create(analysis=pushed, document_id=uuid4(), host="laptop", ran="2026-11-24")
    make_analysis(ada, Status.RUNNING, device="GPU-1", heartbeat_at=now)
    nodes: dict[str, dict[str, Any]] = {
        "a": {"gpu_uuid": "GPU-1"},
        "b": {"gpu_uuid": "GPU-2", "draining": True},
    }
    for name, fields in nodes.items():
        Node.objects.create(name=name, heartbeat_at=now, **fields)
    Node.objects.create(name="c", heartbeat_at=now, problem="another key")
    Node.objects.create(name="gone", heartbeat_at=now - timedelta(days=1), gpu_uuid="GPU-3")
    for analysis, status in ((old, Delivery.GIVEN_UP), (stored, Delivery.SENT)):
        make_notification(analysis, status=status)
    response = scrape.get("/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    assert "no-store" in response["Cache-Control"]
    found = _samples(response.content.decode())

    expected = {
        ("memorymark_analyses", "queued"): 1,
        ("memorymark_analyses", "running"): 1,
        ("memorymark_analyses", "succeeded"): 4,
        ("memorymark_analyses", "lost"): 0,
        ("memorymark_last_hour_ended", "succeeded"): 3,
        ("memorymark_last_hour_worked_on", ""): 2,
        ("memorymark_last_hour_wait_seconds", ""): 10,
        ("memorymark_last_hour_run_seconds", ""): 30,
        ("memorymark_nodes", "online"): 1,
        ("memorymark_nodes", "draining"): 1,
        ("memorymark_nodes", "problem"): 1,
        ("memorymark_nodes", "offline"): 1,
        ("memorymark_gpus", "busy"): 1,
        ("memorymark_gpus", "free"): 1,
        ("memorymark_notifications", "given_up"): 1,
        ("memorymark_lookups", "waiting"): 0,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert ("memorymark_last_hour_ended", "failed") not in found
    assert ("memorymark_notifications", "sent") not in found
    assert 300 <= found["memorymark_queue_oldest_wait_seconds", ""] < 400


def test_an_empty_lab_has_metrics_too(scrape: Client) -> None:
    found = _samples(scrape.get("/metrics").content.decode())
    assert found["memorymark_queue_oldest_wait_seconds", ""] == 0
    assert found["memorymark_analyses", "queued"] == 0


@pytest.mark.parametrize("size", [1, 20])
def test_the_number_of_queries_does_not_grow_with_the_lab(
    scrape: Client, size: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    owner = make_user()
    for number in range(size):
        make_analysis(owner)
        name, uuid = f"node-{number}", f"GPU-{number}"
        Node.objects.create(name=name, heartbeat_at=timezone.now(), gpu_uuid=uuid)
    with django_assert_num_queries(7):
        assert scrape.get("/metrics").status_code == 200


def test_metrics_report_an_unavailable_database(
    scrape: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        def close(self) -> None:
            """Does nothing, in place of a connection."""

    def refuse() -> None:
        raise OperationalError("could not connect to postgres://user:secret@host")

    monkeypatch.setattr(lab_metrics, "lab_state", refuse)
    monkeypatch.setattr(prometheus, "connection", Down())
    response = scrape.get("/metrics")
    assert response.status_code == 503
    assert response.content == b"The database does not answer.\n"


def test_requests_are_counted_by_class(scrape: Client) -> None:
    first = _samples(scrape.get("/metrics").content.decode())
    scrape.get("/accounts/login/")
    scrape.get("/no-such-page/")
    second = _samples(scrape.get("/metrics").content.decode())
    name = "memorymark_http_request_seconds"

    # the first scrape is counted after its response
    assert second[f"{name}_count", "2xx"] - first.get((f"{name}_count", "2xx"), 0) == 2
    assert second[f"{name}_sum", "2xx"] > first.get((f"{name}_sum", "2xx"), 0)
    assert sum(value for (key, _), value in second.items() if key == f"{name}_count") >= 3


MONITORING = Path(settings.BASE_DIR) / "docs" / "monitoring"


def _alerts() -> list[str]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["annotations"].keys() == {"summary", "description"}
    return [rule["expr"] for rule in group["rules"]]


def _panels() -> list[str]:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("expressions", [_alerts(), _panels()], ids=["alerts", "dashboard"])
def test_alerts_and_dashboard_use_metrics_and_labels_that_the_site_serves(
    scrape: Client, settings: Settings, tmp_path: Path, expressions: list[str]
) -> None:
    settings.DATA_DIR = tmp_path
    note_backup()
    failed = make_analysis(make_user("ada"), Status.FAILED, failure_code="crashed")
    Analysis.objects.filter(pk=failed.pk).update(finished_at=timezone.now())
    make_analysis(failed.owner)
    Client().post("/accounts/login/", {"login": "ada", "password": "wrong"})
    served: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrape.get("/metrics").content.decode()):
        for sample in family.samples:
            served.setdefault(sample.name, set()).update(sample.labels)

    assert expressions
    for expression in expressions:
        names = re.findall(r"\bmemorymark_\w+", expression)
        assert names or expression.startswith("up{job="), expression
        assert set(names) <= served.keys(), expression
        for name, labels in re.findall(r"(memorymark_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)(?:=~|=)", labels)) <= served[name], expression
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouped.split(", ")) <= set().union(*(served[name] for name in names))


def test_the_machine_and_the_last_backup_are_reported(
    transactional_db: None, scrape: Client, settings: Settings, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    before = _samples(scrape.get("/metrics").content.decode())
    assert ("memorymark_backup_last_success_timestamp_seconds", "") not in before
    assert 0 < before["memorymark_data_free_bytes", ""] <= before["memorymark_data_total_bytes", ""]
    assert before["memorymark_site_processes", ""] == 1
    assert before["memorymark_site_memory_bytes", ""] > 10_000_000
    assert before["memorymark_build_info", django.__version__] == 1

    call_command("backup", str(tmp_path / "lab.zip"), stdout=io.StringIO())
    with pytest.raises(CommandError):  # the file exists, so this is no good backup
        call_command("backup", str(tmp_path / "lab.zip"), stdout=io.StringIO())
    after = _samples(scrape.get("/metrics").content.decode())
    last = after["memorymark_backup_last_success_timestamp_seconds", ""]
    assert 0 <= timezone.now().timestamp() - last < 600


def test_failed_sign_ins_are_counted(scrape: Client) -> None:
    make_user("ada")
    grace = make_user("grace")
    TOTP.activate(grace, generate_totp_secret())
    name = "memorymark_sign_in_failures_total"
    counts = {"wrong_password": 10, "too_many": 3, "wrong_code": 1, "wrong_passkey": 1}
    before = _samples(scrape.get("/metrics").content.decode())
    browser = Client()
    for password in [*["wrong"] * 12, "correct horse battery"]:
        browser.post("/accounts/login/", {"login": "ada", "password": password})
    browser = Client()
    browser.post("/accounts/login/", {"login": "grace", "password": "correct horse battery"})
    browser.post("/accounts/login/code/", {"code": "000000"})
    Client().post("/accounts/login/passkey/", {"credential": "{}"})
    after = _samples(scrape.get("/metrics").content.decode())
    for reason, count in counts.items():
        assert after[name, reason] - before.get((name, reason), 0) == count


@pytest.mark.slow
def test_the_counts_of_several_processes_are_added_up(tmp_path: Path) -> None:
    program = """
import sys
from prometheus_client import CollectorRegistry, generate_latest
import django; django.setup()
from memorymark_site.operations import prometheus
if sys.argv[1] == "count":
    prometheus.SECONDS.labels("2xx").observe(0.5)
else:
    registry = CollectorRegistry(auto_describe=False)
    prometheus.register_in(registry)
    print(generate_latest(registry).decode())
"""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "memorymark_site.settings",
        FOLDER: str(tmp_path),
    }
    said = ""
    for what in ("count", "count", "tell"):
        said = subprocess.run(
            [sys.executable, "-c", program, what],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = _samples(said)
    assert found["memorymark_http_request_seconds_count", "2xx"] == 2
    assert found["memorymark_http_request_seconds_sum", "2xx"] == 1
