"""What every test needs: patience, no collected static files, and quick passwords."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import hypothesis
import pytest
from django.core.management.sql import sql_flush


def pytest_configure() -> None:
    from django.conf import settings

    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}
    settings.WHITENOISE_AUTOREFRESH = True  # it need not scan the folder at the start
    settings.API_UNITS_PER_MINUTE = 0  # the ids of members are the same from test to test
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True, scope="session")
def _flushing_takes_every_table() -> Iterator[None]:
    """PostgreSQL empties the members' table only with the one that knox left beside it.

    Its token model is swapped for ours, so no model names that table, and Django passes it over.
    """

    def flush_all(*arguments: Any, **options: Any) -> list[str]:
        return sql_flush(*arguments, **options | {"allow_cascade": True})

    with patch("django.core.management.commands.flush.sql_flush", flush_all):
        yield


@pytest.fixture(autouse=True)
def _no_engine_left_waiting() -> object:
    """A test that ran the worker's task leaves no warm engine behind."""
    from analyses import worker

    yield
    worker.engines.close()


# A slow or busy machine is no failure: nothing here is judged by the time it takes.
hypothesis.settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any-machine")
