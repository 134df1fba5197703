"""Makes a backup while the lab works: one snapshot of the database, which blocks no writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from memorymark_site.operations.backups.archive import Archive, ArchiveWriter, Manifest, Table
from memorymark_site.operations.backups.tables import (
    LEFT_OUT,
    Model,
    UnknownMigrations,
    applied_migrations,
    columns_of,
    models_at,
    name_of,
)

_ROWS_AT_ONCE = 200
"""Of an analysis with its curve, some 10 MB."""


class CannotBackUp(Exception):
    """There is nothing to back up, or nowhere to put it; the message says what to do."""


def back_up(path: Path) -> Manifest:
    """Write all rows of the lab into a new file, which only its owner can read, and read it back.

    It has its name when it is whole, and not before.

    Raises:
        CannotBackUp: With words.
        BadArchive: If what was written cannot be read back.
        OSError: If it cannot be written.
    """
    if path.exists():
        raise CannotBackUp(f"{path} is there already; name another file")
    draft = path.with_name(f"{path.name}.part")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        manifest = _write(draft)
        with Archive(draft) as archive:
            archive.check()
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return manifest


def _write(path: Path) -> Manifest:
    with snapshot():
        made_at = timezone.now()
        applied = applied_migrations(connection)
        if not applied:
            raise CannotBackUp("the database is empty; there is nothing to back up")
        try:
            models = models_at(applied, MigrationLoader(connection))
        except UnknownMigrations as error:
            raise CannotBackUp(
                f"the database is newer than this version of MemoryMark, which lacks {error}; "
                "back it up with the version that the site runs"
            ) from error
        with ArchiveWriter(path) as writer:
            kept = [model for model in models if name_of(model) not in LEFT_OUT]
            tables = tuple(_write_table(writer, model) for model in kept)
            manifest = Manifest(
                made_at.isoformat(), connection.vendor, tuple(sorted(applied)), tables
            )
            writer.finish(manifest)
    return manifest


def _write_table(writer: ArchiveWriter, model: Model) -> Table:
    columns = columns_of(model)
    rows = model._base_manager.order_by("pk").values_list(*columns)
    return writer.write(name_of(model), columns, rows.iterator(_ROWS_AT_ONCE))


@contextmanager
def snapshot() -> Iterator[None]:
    """All that is read within is of one moment, however long it takes, and nobody waits for it."""
    if connection.vendor == "sqlite":
        # Django would begin with IMMEDIATE, which keeps writers out. In WAL mode a plain
        # transaction sees the database as it was at its first read.
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
