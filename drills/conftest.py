from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from analyses.tests.factories import make_result
from drills.lab import Lab

StartLab = Callable[..., Lab]

DATABASES = ["sqlite", "postgres"]

POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/test")


def checkerboard(*axes: Sequence[object]) -> list[pytest.ParameterSet]:
    """Every combination; one in as many as there are axes, the others only in ``make test-all``.

    They lie as on a chessboard, so each value of an axis still runs with several of the others.
    """
    return [
        pytest.param(*values, marks=pytest.mark.full if sum(squares) % len(axes) else ())
        for squares, values in zip(
            product(*(range(len(axis)) for axis in axes)), product(*axes), strict=True
        )
    ]


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[StartLab]:
    """Creates labs whose processes end with the test."""
    labs: list[Lab] = []

    def start(**options: Any) -> Lab:
        labs.append(Lab(tmp_path, result=make_result().to_dict(), **options))
        return labs[-1]

    yield start
    for lab in labs:
        lab.end()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A new database on the PostgreSQL server; skips the test where there is none."""
    name = f"drill_{uuid.uuid4().hex[:12]}"
    try:
        server = psycopg.connect(POSTGRES_URL, autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at TEST_POSTGRES_URL: {error}")
    with server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield f"{POSTGRES_URL.rsplit('/', 1)[0]}/{name}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """Runs the test on both databases; an empty URL means SQLite in the lab's folder."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
