"""Backs up all rows of a lab while it works, from one snapshot that blocks no writer.

The tables are those of the applied migrations, which may be older than the code.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from memorymark_site.operations.archive import Archive, ArchiveWriter, Manifest, Table

LEFT_OUT = frozenset(
    {
        "sessions.session",  # keys to the site: members sign in again
        "accounts.signin",  # their owners
        "accounts.attempt",  # recent wrong passwords
        "accounts.knownnetwork",  # learned again when members sign in
        "accounts.setuplink",  # another key; a lab with members needs none
        "analyses.spentunits",  # of the last minute
        "django_q.ormq",  # not used: the jobs are the queue
        "django_q.task",
        "django_q.schedule",
    }
)
"""Tables whose rows are not backed up."""

Model = type[models.Model]
Key = tuple[str, str]
"""The app and the name of a migration."""


class UnknownMigrations(Exception):
    """Migrations are applied that this version lacks."""


def applied_migrations(connection: BaseDatabaseWrapper) -> frozenset[str]:
    """A database's applied migrations, such as ``analyses.0001_initial``; none if it is new."""
    recorder = MigrationRecorder(connection)
    return frozenset(f"{app}.{name}" for app, name in recorder.applied_migrations())


def steps(connection: BaseDatabaseWrapper) -> MigrationLoader:
    """Loads every migration, but for those that replace several in a new database.

    A backup may have been taken between two of the replaced ones.
    """
    loader = MigrationLoader(connection, replace_migrations=False)
    for key, migration in loader.replacements.items():
        loader.graph.remove_replacement_node(key, migration.replaces)
    return loader


def keys_of(migrations: Iterable[str], loader: MigrationLoader) -> list[Key]:
    """The same migrations by the keys of the loader of :func:`steps`, sorted."""
    split = (migration.partition(".") for migration in migrations)
    keys = ((app, name) for app, _, name in split)
    return sorted(key for key in keys if key not in loader.replacements)


def last_ones(keys: Collection[Key], loader: MigrationLoader) -> list[Key]:
    """The last migration of each app: migrating to these applies all."""
    nodes = loader.graph.node_map
    return [
        key
        for key in keys
        if not any(child.key[0] == key[0] and child.key in keys for child in nodes[key].children)
    ]


def models_at(migrations: Iterable[str], loader: MigrationLoader) -> list[Model]:
    """The models of all tables at these migrations, sorted by name.

    A backup may be older than the code, or taken before the database is migrated.

    Raises:
        UnknownMigrations: If the code is older.
    """
    keys = keys_of(migrations, loader)
    unknown = [f"{app}.{name}" for app, name in keys if (app, name) not in loader.graph.nodes]
    if unknown:
        raise UnknownMigrations(", ".join(unknown))
    found = loader.project_state(keys).apps.get_models(include_auto_created=True)
    tables = (model for model in found if model._meta.managed and not model._meta.proxy)
    return sorted(tables, key=name_of)


def name_of(model: Model) -> str:
    return model._meta.label_lower


def columns_of(model: Model) -> list[str]:
    """The columns of a table, by the model's names."""
    return [field.attname for field in model._meta.concrete_fields]


def stored(field: models.Field[Any, Any], value: object, connection: BaseDatabaseWrapper) -> Any:
    """A value from a backup, as the database takes it."""
    return field.get_db_prep_save(field.to_python(value), connection)


_ROWS_AT_ONCE = 200
"""Some 10 MB of analyses with their curves."""


class CannotBackUp(Exception):
    """There is nothing to back up, or nowhere to write it; the message says what to do."""


def back_up(path: Path) -> Manifest:
    """Write all rows into a new file that only its owner can read, and read it back.

    The file gets its name once it is complete.

    Raises:
        CannotBackUp: With the reason.
        BadArchive: If it cannot be read back.
        OSError: If it cannot be written.
    """
    if path.exists():
        raise CannotBackUp(f"{path} already exists; choose another file")
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
            models = models_at(applied, steps(connection))
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
    """Everything read within is from one moment, however long it takes; nobody has to wait."""
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
