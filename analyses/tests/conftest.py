from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from analyses.tests.factories import make_result, make_user

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def member(db: None) -> User:
    return make_user("grace")


@pytest.fixture
def api(member: User) -> APIClient:
    """A script of the member's."""
    client = APIClient()
    client.force_authenticate(member)
    return client


@pytest.fixture
def fake_engine(settings: Settings, tmp_path: Path) -> Callable[[str], list[str]]:
    """Makes the engine behave in one of the ways of ``fake_engine.py``; gives its command."""
    result = tmp_path / "result.json"
    result.write_text(json.dumps(make_result().to_dict()))

    def behave(behaviour: str) -> list[str]:
        command = [sys.executable, "-I", str(FAKE_ENGINE), behaviour, str(result)]
        settings.ENGINE_COMMAND = command
        return command

    return behave
