"""Set-up for all tests: no time limits, no collected static files, fast password hashing."""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import pytest
from django.core.management.sql import sql_flush
from django.db import transaction
from pytest_django import DjangoDbBlocker

from engine.core.process import collect_rarely

MESSAGE = "message"
"""The property of a test that holds its message for the end of the run."""

os.environ["ENGINE_TRACES"] = ""  # every test makes its own traces, in its own processes too
if "PYTEST_XDIST_WORKER" in os.environ:  # one core each; torch reads this on import
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}
    settings.WHITENOISE_AUTOREFRESH = True  # no need to scan the folder at the start
    settings.DOWNLOADS_AT_ONCE = 0  # test processes share the data folder
    settings.API_UNITS_PER_MINUTE = 0  # members have the same ids in every test
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector pass over what is imported and collected, since all of it stays.

    It also looks for garbage less often, as the engine's processes do: a twelfth of the time of the
    site's tests went there.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        collect_rarely()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == MESSAGE:
                terminalreporter.write_line(str(line))


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Reports a line about a passed test, such as its coverage, at the end of the run."""
    return lambda line: request.node.user_properties.append((MESSAGE, line))


@pytest.fixture(scope="session")
def memorymark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import ``memorymark`` from, for examples that are written for its users."""
    folder = tmp_path_factory.mktemp("memorymark")
    (folder / "memorymark").symlink_to(Path(__file__).parent / "engine")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _flushing_takes_every_table() -> Iterator[None]:
    """Empty knox's own token table too, or PostgreSQL refuses to empty the members' table.

    The token model is swapped for ours, so knox's table has no model and Django skips it.
    """

    def flush_all(*arguments: Any, **options: Any) -> list[str]:
        return sql_flush(*arguments, **options | {"allow_cascade": True})

    with patch("django.core.management.commands.flush.sql_flush", flush_all):
        yield


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database for fixtures that are made once a module.

    Rows that are made with it are there for all tests of the module that follow; what a test itself
    changes is undone as always. So that none depends on what another did to the objects of such a
    fixture, it gives each a copy.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def _no_engine_left_waiting() -> object:
    """End the warm engine of a test that ran the worker's task."""
    from analyses.jobs import worker

    yield
    worker.engines.close()


# A slow or busy machine is no failure: no test depends on the time it takes.
hypothesis.settings.register_profile(
    "same-examples",  # a test that passed passes again until the code changes
    deadline=None,
    derandomize=True,
    max_examples=25,  # .ci/nightly looks for new ones
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "new-examples",  # make test-properties
    hypothesis.settings.get_profile("same-examples"),
    derandomize=False,
    max_examples=1000,
)
hypothesis.settings.register_profile(
    "no-shrinking",  # make mutants: any failing example is enough
    hypothesis.settings.get_profile("same-examples"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("same-examples")
