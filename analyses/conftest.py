from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django_q.conf import Conf
from pytest_django import Settings
from rest_framework.test import APIClient

from analyses.jobs import nodes, queue, timeouts
from analyses.jobs.tests.queueing import Clock, Enqueue
from analyses.models import Analysis, Node, Status
from analyses.pages import long_poll
from analyses.pages.tests.compared import make_three
from analyses.tests.factories import make_analysis, make_result, make_user
from engine.gpus.driver import LocalGpu

FAKE_ENGINE = Path(__file__).parent / "jobs" / "tests" / "fake_engine.py"


@pytest.fixture(autouse=True)
def never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that would wait for a change are answered at once."""
    monkeypatch.setattr(long_poll, "HELD_SECONDS", 0.0)


@pytest.fixture
def member(db: None) -> User:
    return make_user("grace")


@pytest.fixture
def page(client: Client, member: User) -> Client:
    """A browser in which the member is signed in."""
    client.force_login(member)
    return client


@pytest.fixture
def admin(db: None) -> User:
    """An admin of the lab."""
    return make_user("root", is_staff=True)


@pytest.fixture
def admins_page(admin: User) -> Client:
    """A browser in which the admin is signed in."""
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def analysis(member: User) -> Analysis:
    """An analysis of the member's with its result."""
    return make_analysis(member, Status.SUCCEEDED)


@pytest.fixture
def node(db: None) -> Node:
    """A node that responds."""
    return Node.objects.create(name="lab-1", heartbeat_at=timezone.now())


@pytest.fixture
def three(member: User) -> list[Analysis]:
    """Analyses to compare."""
    return make_three(member)


@pytest.fixture
def api(member: User) -> APIClient:
    """A script with the member's token."""
    client = APIClient()
    client.force_authenticate(member)
    return client


@pytest.fixture
def fake_engine(settings: Settings, tmp_path: Path) -> Callable[[str], list[str]]:
    """Replaces the engine by ``fake_engine.py`` with the given behaviour; returns its command."""
    result = tmp_path / "result.json"
    result.write_text(json.dumps(make_result().to_dict()))

    def behave(behaviour: str) -> list[str]:
        command = [sys.executable, "-I", str(FAKE_ENGINE), behaviour, str(result)]
        settings.ENGINE_COMMAND = command
        return command

    return behave


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> nodes.Here:
    """This node, with one GPU and one worker for predictions."""
    gpu = LocalGpu("NVIDIA A10", "GPU-1", 24_146_608_128, "580.95")
    node = nodes.Here("lab-1", gpu, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: node)
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 3600)
    return node


@pytest.fixture
def enqueue(member: User) -> Enqueue:
    """Queues an analysis."""

    def make(**fields: Any) -> Analysis:
        return make_analysis(member, **fields)

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the broker reads."""
    clock = Clock()
    monkeypatch.setattr(queue, "monotonic", clock)
    return clock
