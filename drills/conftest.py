from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from analyses.tests.factories import make_result
from drills.lab import Lab
from drills.surroundings import DATABASE_FILE

StartLab = Callable[..., Lab]

DATABASES = ["sqlite", "postgres"]

POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/test")


def each_value(*axes: Sequence[object]) -> list[pytest.ParameterSet]:
    """Every combination; those that go along all axes at once are enough to have each value.

    The others run only in ``make test-all``.
    """
    longest = max(map(len, axes))
    steps = {tuple(axis[step % len(axis)] for axis in axes) for step in range(longest)}
    return [
        pytest.param(*values, marks=() if values in steps else pytest.mark.full)
        for values in product(*axes)
    ]


on_one_database = pytest.mark.parametrize(
    "database_url",
    ["postgres", pytest.param("sqlite", marks=pytest.mark.full)],
    indirect=True,
)
"""On SQLite only in ``make test-all``, where the other drills use it."""


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with all tables and no rows, to copy: migrating takes 10 s each time."""
    lab = Lab(tmp_path_factory.mktemp("migrated"), result=make_result().to_dict())
    lab.end()
    return lab.folder / "var" / DATABASE_FILE


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of such a database on the PostgreSQL server."""
    with _new_database() as name:
        folder = tmp_path_factory.mktemp("migrated")
        Lab(folder, database_url=_url(name), result=make_result().to_dict()).end()
        yield name


@pytest.fixture
def start_lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartLab]:
    """Creates labs whose processes end with the test."""
    labs: list[Lab] = []

    def migrate(database_url: str, folder: Path) -> None:
        if database_url:
            template = request.getfixturevalue("migrated_database")
            name = database_url.rsplit("/", 1)[1]
            with _server() as server:
                server.execute(f"DROP DATABASE {name}")
                server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(request.getfixturevalue("migrated_file"), folder / DATABASE_FILE)

    def start(*, migrated: bool = True, database_url: str = "", **options: Any) -> Lab:
        if migrated:
            migrate(database_url, options.get("data_dir", tmp_path / "var"))
        options |= {"database_url": database_url, "migrated": False}
        labs.append(Lab(tmp_path, result=make_result().to_dict(), **options))
        return labs[-1]

    yield start
    for lab in labs:
        lab.end()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A new database on the PostgreSQL server; skips the test where there is none."""
    try:
        _server().close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at TEST_POSTGRES_URL: {error}")
    with _new_database() as name:
        yield _url(name)


def _server() -> psycopg.Connection[Any]:
    return psycopg.connect(POSTGRES_URL, autocommit=True, connect_timeout=3)


@contextmanager
def _new_database() -> Iterator[str]:
    name = f"drill_{uuid.uuid4().hex[:12]}"
    with _server() as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield name
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _url(name: str) -> str:
    return f"{POSTGRES_URL.rsplit('/', 1)[0]}/{name}"


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """Runs the test on both databases; an empty URL means SQLite in the lab's folder."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
