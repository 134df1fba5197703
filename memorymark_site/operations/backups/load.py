"""Puts a backup into a database: all rows or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from django.core.management import call_command
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models.functions import Now

from analyses import pace, recovery
from analyses.recovery import LetGo
from memorymark_site.operations.backups.archive import Archive, BadArchive, Manifest, Table
from memorymark_site.operations.backups.tables import (
    LEFT_OUT,
    Model,
    UnknownMigrations,
    applied_migrations,
    columns_of,
    keys_of,
    last_ones,
    models_at,
    name_of,
    stored,
)

_ROWS_AT_ONCE = 200

_MADE_BY_ITSELF = frozenset({"contenttypes.contenttype", "auth.permission", "analyses.node"})
"""Tables that have rows before anybody has used an instance."""


class CannotRestore(Exception):
    """The database is not one to restore into; the message says what to do."""


@dataclass(frozen=True)
class Restored:
    """What a restore has done.

    Attributes:
        replaced: How many rows of each table were there before and are gone; only with ``replace``.
        let_go: What had been in hand when the backup was made.
    """

    replaced: dict[str, int]
    let_go: LetGo


def restore(archive: Archive, *, replace: bool = False) -> Restored:
    """Put all rows of a backup into the database, then bring it up to date.

    Args:
        archive: A backup that has been checked.
        replace: Whether the rows of a lab that is there may go.

    Raises:
        CannotRestore: Nothing has changed then, but for tables that a new database may have got.
        BadArchive: The same.
    """
    manifest = archive.manifest
    models = _models(manifest)
    _make_tables(manifest)
    with transaction.atomic():
        _lock(models)
        there = rows_there(models)
        if there and not replace:
            raise CannotRestore(_not_empty(there))
        _insert_all(archive, {name_of(model): model for model in models})
    call_command("migrate", interactive=False, verbosity=0)
    return Restored(there, recovery.let_go())


def rows_there(models: Sequence[Model]) -> dict[str, int]:
    """How many rows the tables have that a person or a script has made; empty ones are left out.

    Raises:
        CannotRestore: If workers are alive: they would go on working with what is replaced.
    """
    counts = {}
    for model in models:
        name = name_of(model)
        if name == "analyses.node":
            alive = model._base_manager.filter(heartbeat_at__gte=Now() - pace.STALE_AFTER)
            if alive.exists():
                raise CannotRestore(
                    "workers are running on this database; stop the site and its workers, wait "
                    f"{pace.STALE_AFTER.total_seconds():.0f} s, and try again"
                )
        if name not in LEFT_OUT | _MADE_BY_ITSELF and (count := model._base_manager.count()):
            counts[name] = count
    return counts


def _models(manifest: Manifest) -> list[Model]:
    """The models of the backup's time; its tables have to be theirs."""
    try:
        models = models_at(manifest.migrations, MigrationLoader(connection))
    except UnknownMigrations as error:
        raise CannotRestore(
            f"the backup is of a newer MemoryMark; this one lacks {error}. Update it (git pull)"
        ) from error
    expected = {name_of(model): columns_of(model) for model in models}
    for name in LEFT_OUT:
        expected.pop(name, None)
    if {table.name: list(table.columns) for table in manifest.tables} != expected:
        raise BadArchive("the backup's tables are not those of its migrations; it was changed")
    return models


def _make_tables(manifest: Manifest) -> None:
    """Give a new database the tables of the backup's time; leave one that has these as it is."""
    applied = applied_migrations(connection)
    if applied == set(manifest.migrations):
        return
    if connection.introspection.table_names():
        raise CannotRestore(
            "the backup is older than this database's tables. Restore it into a new database "
            "that has none (an empty MEMORYMARK_DATA_DIR, or CREATE DATABASE); it is brought up "
            "to date then"
        )
    executor = MigrationExecutor(connection)
    executor.migrate(last_ones(keys_of(manifest.migrations), executor.loader))


def _lock(models: Sequence[Model]) -> None:
    """Keep everybody else from writing until this is done; SQLite does that anyway."""
    if connection.vendor == "postgresql":
        tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in models)
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")


def _insert_all(archive: Archive, models: dict[str, Model]) -> None:
    """Empty the tables and fill them; keys between them are checked at the end."""
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        for model in models.values():
            cursor.execute(f"DELETE FROM {quote(model._meta.db_table)}")  # noqa: S608  # a table's
    for table in archive.manifest.tables:
        _insert(archive, table, models[table.name])
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(models.values())):
            cursor.execute(statement)
    connection.check_constraints()


def _insert(archive: Archive, table: Table, model: Model) -> None:
    quote, fields = connection.ops.quote_name, model._meta.concrete_fields
    columns = ", ".join(quote(field.column or "") for field in fields)
    places = ", ".join(["%s"] * len(fields))
    statement = f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({places})"  # noqa: S608  # names of a model
    rows = archive.rows(table)
    with connection.cursor() as cursor:
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            cursor.executemany(
                statement,
                [
                    [
                        stored(field, value, connection)
                        for field, value in zip(fields, row, strict=True)
                    ]
                    for row in some
                ],
            )
    if model._base_manager.count() != table.rows:
        raise BadArchive(f"{table.name} has not the {table.rows:,} rows that the manifest says")


def _not_empty(there: dict[str, int]) -> str:
    rows = ", ".join(f"{count:,} of {name}" for name, count in there.items())
    return (
        f"this database is not empty ({rows}). Restore into a new one (an empty "
        "MEMORYMARK_DATA_DIR, or another DATABASE_URL), or say --force to replace what is there"
    )
