"""What every test needs: patience, no collected static files, and quick passwords."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import pytest
from django.core.management.sql import sql_flush

TOLD = "told"
"""Name of the property of a test that holds what it says at the end of a run."""

if "PYTEST_XDIST_WORKER" in os.environ:  # one core each; torch reads this when it is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}
    settings.WHITENOISE_AUTOREFRESH = True  # it need not scan the folder at the start
    settings.API_UNITS_PER_MINUTE = 0  # the ids of members are the same from test to test
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == TOLD:
                terminalreporter.write_line(str(line))


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says something of a passed test, such as how much it has covered, at the end of the run."""
    return lambda line: request.node.user_properties.append((TOLD, line))


@pytest.fixture(scope="session")
def memorymark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import ``memorymark`` from, for examples that are written for its users."""
    folder = tmp_path_factory.mktemp("memorymark")
    (folder / "memorymark").symlink_to(Path(__file__).parent / "engine")
    return folder


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
    from analyses.jobs import worker

    yield
    worker.engines.close()


# A slow or busy machine is no failure: nothing here is judged by the time it takes.
hypothesis.settings.register_profile(
    "same-examples",  # what has passed passes again, until the code changes
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "new-examples",  # make test-properties
    hypothesis.settings.get_profile("same-examples"),
    derandomize=False,
    max_examples=1000,
)
hypothesis.settings.register_profile(
    "no-shrinking",  # make mutants: an example that fails is enough
    hypothesis.settings.get_profile("same-examples"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("same-examples")
