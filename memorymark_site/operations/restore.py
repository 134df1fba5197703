"""Restores a backup into a database: all rows or none.

Two signals let the apps whose rows are replaced object, and put their rows right afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import DataError, IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Field
from django.dispatch import Signal

from memorymark_site.operations.archive import Archive, BadArchive, Manifest, Table
from memorymark_site.operations.backup import (
    LEFT_OUT,
    Model,
    UnknownMigrations,
    applied_migrations,
    columns_of,
    keys_of,
    last_ones,
    models_at,
    name_of,
    steps,
    stored,
)

before_restore = Signal()
"""Sent with ``models``, by table name and as of the backup's migrations, while the tables are
locked. A receiver returns why a restore is not safe now, as a sentence with its remedy, or ``""``.
"""

restored = Signal()
"""Sent when all rows are in and migrated. A receiver returns a list of lines that say what it put
right, for the person who runs the restore.
"""

_ROWS_AT_ONCE = 200

_MADE_BY_ITSELF = frozenset({"contenttypes.contenttype", "auth.permission", "analyses.node"})
"""Tables that have rows before anyone has used an instance."""


class CannotRestore(Exception):
    """This database cannot be restored into; the message says what to do."""


@dataclass(frozen=True)
class Restored:
    """The effects of a restore.

    Attributes:
        replaced: The number of rows removed from each table; only with ``replace``.
        notes: Corrections that the apps made afterwards, in sentences.
    """

    replaced: dict[str, int]
    notes: list[str]


def restore(archive: Archive, *, replace: bool = False) -> Restored:
    """Insert all rows of a backup, then migrate the database.

    Args:
        archive: A checked backup.
        replace: Whether existing rows may be deleted.

    Raises:
        CannotRestore: Nothing has changed, except that a new database may have got tables.
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
    notes = [line for _, lines in restored.send(restore) for line in lines or []]
    return Restored(there, notes)


def rows_there(models: Sequence[Model]) -> dict[str, int]:
    """The number of rows that people or scripts created, by table; empty ones are left out.

    Raises:
        CannotRestore: If an app objects, as when workers are still running.
    """
    by_name = {name_of(model): model for model in models}
    for _, reason in before_restore.send(restore, models=by_name):
        if reason:
            raise CannotRestore(reason)
    counts = {}
    for name, model in by_name.items():
        if name not in LEFT_OUT | _MADE_BY_ITSELF and (count := model._base_manager.count()):
            counts[name] = count
    return counts


def _models(manifest: Manifest) -> list[Model]:
    """The models at the backup's migrations; its tables have to match them."""
    try:
        models = models_at(manifest.migrations, steps(connection))
    except UnknownMigrations as error:
        raise CannotRestore(
            f"the backup is from a newer version, and this one lacks {error}. Update it (git pull)"
        ) from error
    expected = {name_of(model): columns_of(model) for model in models}
    for name in LEFT_OUT:
        expected.pop(name, None)
    if {table.name: list(table.columns) for table in manifest.tables} != expected:
        raise BadArchive("the backup's tables do not match its migrations; it was modified")
    return models


def _make_tables(manifest: Manifest) -> None:
    """Create the tables of the backup's migrations in a new database, unless it has them."""
    applied = applied_migrations(connection)
    if applied == set(manifest.migrations):
        return
    if connection.introspection.table_names():
        raise CannotRestore(
            "the backup is older than this database's tables. Restore it into a new database "
            "without any (an empty MEMORYMARK_DATA_DIR, or CREATE DATABASE), which is then migrated"
        )
    executor = MigrationExecutor(connection)
    executor.loader = steps(connection)
    keys = keys_of(manifest.migrations, executor.loader)
    executor.migrate(last_ones(keys, executor.loader))


def _lock(models: Sequence[Model]) -> None:
    """Keep others from writing until this is done; SQLite does so anyway."""
    if connection.vendor == "postgresql":
        tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in models)
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")


def admins(archive: Archive) -> list[str]:
    """The names of those who may change everything in the lab of a backup."""
    found = []
    for table in archive.manifest.tables:
        if table.name == "auth.user":
            rows = (dict(zip(table.columns, row, strict=True)) for row in archive.rows(table))
            found += [
                str(row.get("username"))
                for row in rows
                if row.get("is_staff") or row.get("is_superuser")
            ]
    return found


def _insert_all(archive: Archive, models: dict[str, Model]) -> None:
    """Empty and fill the tables; foreign keys are checked at the end."""
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        for model in models.values():
            cursor.execute(f"DELETE FROM {quote(model._meta.db_table)}")  # noqa: S608  # nosec  # a table's
    for table in archive.manifest.tables:
        _insert(archive, table, models[table.name])
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(models.values())):
            cursor.execute(statement)
    try:
        connection.check_constraints()
    except IntegrityError as error:
        raise BadArchive(f"the backup refers to a row that is not in it: {error}") from error


def _insert(archive: Archive, table: Table, model: Model) -> None:
    quote, fields = connection.ops.quote_name, model._meta.concrete_fields
    columns = ", ".join(quote(field.column or "") for field in fields)
    places = ", ".join(["%s"] * len(fields))
    statement = f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({places})"  # noqa: S608  # nosec  # names of a model
    rows = archive.rows(table)
    with connection.cursor() as cursor:
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            try:
                cursor.executemany(statement, [_stored(fields, row) for row in some])
            except (DataError, IntegrityError, TypeError, ValueError, ValidationError) as error:
                raise BadArchive(f"{table.name} has a row that it cannot have: {error}") from error
    if model._base_manager.count() != table.rows:
        raise BadArchive(
            f"{table.name} does not have the {table.rows:,} rows that the manifest lists"
        )


def _stored(fields: Sequence[Field[Any, Any]], row: Sequence[Any]) -> list[Any]:
    return [stored(field, value, connection) for field, value in zip(fields, row, strict=True)]


def _not_empty(there: dict[str, int]) -> str:
    rows = ", ".join(f"{count:,} of {name}" for name, count in there.items())
    return (
        f"this database is not empty ({rows}). Restore into a new one (an empty "
        "MEMORYMARK_DATA_DIR, or another DATABASE_URL), or use --force to replace what is there"
    )
