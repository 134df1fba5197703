"""What the drills' commands share: an answer to give, a database to give it on, how to say it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg


def answer() -> dict[str, object]:
    """An answer of the real engine, which each analysis gets."""
    from engine.analysis import analyze
    from engine.request import AnalysisRequest

    request = AnalysisRequest.parse({"model": "resnet-18", "gpu": "a10"})
    return analyze(request, lambda event: None).to_dict()


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """A new database on the server; SQLite in the lab's folder where none is named."""
    if not server_url:
        yield ""
        return
    name = f"soak_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield f"{server_url.rsplit('/', 1)[0]}/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def name_of(server_url: str) -> str:
    """The database that a drill runs on, in a word."""
    return "PostgreSQL" if server_url else "SQLite"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Let a command print JSON instead of a table."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def print_json(figures: dict[str, Any]) -> None:
    """Print figures that were measured."""
    sys.stdout.write(json.dumps({"source": "measured", **figures}, indent=2) + "\n")


def add_postgres_option(parser: argparse.ArgumentParser) -> None:
    """Let a command run on PostgreSQL instead of SQLite."""
    parser.add_argument(
        "--postgres",
        default="",
        metavar="URL",
        help="such as postgres://postgres@127.0.0.1:5432/test; it makes and drops a database there",
    )
