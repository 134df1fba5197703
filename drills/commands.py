"""Shared by the drills' commands: a sample result, a new database, options and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, LiteralString
from uuid import uuid4

import psycopg

from drills.lab import Lab


def answer() -> dict[str, object]:
    """A result of the real engine, used for every analysis."""
    from engine.analysis import analyze
    from engine.interface.request import AnalysisRequest

    request = AnalysisRequest.parse({"model": "resnet-18", "gpu": "a10"})
    return analyze(request, lambda event: None).to_dict()


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """A new database on the server; without a server, SQLite in the lab's folder."""
    if not server_url:
        yield ""
        return
    name = f"soak_{uuid4().hex[:12]}"
    _on_server(server_url, f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield f"{server_url.rsplit('/', 1)[0]}/{name}"
    finally:
        _on_server(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(url: str, statement: LiteralString) -> None:
    """Execute a statement in a connection of its own: a drill may end those that stay open."""
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(statement)


@contextmanager
def new_lab(server_url: str, **options: Any) -> Iterator[Lab]:
    """A lab in a folder of its own and on a new database; in the end, nothing of it is left.

    Args:
        server_url: Address of a PostgreSQL server; empty for SQLite.
        options: Options of :class:`drills.lab.Lab`.
    """
    with (
        TemporaryDirectory(prefix="memorymark-drill-") as folder,
        new_database(server_url) as url,
    ):
        lab = Lab(Path(folder), database_url=url, **options)
        try:
            yield lab
        finally:
            lab.end()


def name_of(server_url: str) -> str:
    """The name of the database system that a drill runs on."""
    return "PostgreSQL" if server_url else "SQLite"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add an option to print JSON instead of a table."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def print_json(numbers: dict[str, Any]) -> None:
    """Print numbers that were measured."""
    sys.stdout.write(json.dumps({"source": "measured", **numbers}, indent=2) + "\n")


def add_postgres_option(parser: argparse.ArgumentParser) -> None:
    """Add an option to run on PostgreSQL instead of SQLite."""
    parser.add_argument(
        "--postgres",
        default="",
        metavar="URL",
        help="such as postgres://postgres@127.0.0.1:5432/test; it makes and drops a database there",
    )
