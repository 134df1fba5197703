"""Which tables a backup holds, as they were at given migrations, and how values pass through it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

LEFT_OUT = frozenset(
    {
        "sessions.session",  # keys to the site: members sign in again
        "accounts.signin",  # what is said of these
        "accounts.attempt",  # wrong passwords of the last minutes
        "accounts.setuplink",  # another key; a lab that has members needs none
        "django_q.ormq",  # signed with the secret key; the rows say what is queued
        "django_q.task",
        "django_q.schedule",
    }
)
"""Tables whose rows stay behind."""

Model = type[models.Model]
Key = tuple[str, str]
"""The app and the name of a migration."""


class UnknownMigrations(Exception):
    """Migrations are applied that this version does not have."""


def applied_migrations(connection: BaseDatabaseWrapper) -> frozenset[str]:
    """Those of a database, such as ``analyses.0001_initial``; none where it is new."""
    recorder = MigrationRecorder(connection)
    return frozenset(f"{app}.{name}" for app, name in recorder.applied_migrations())


def keys_of(migrations: Iterable[str]) -> list[Key]:
    """The same migrations as Django's loader names them, in order."""
    split = (migration.partition(".") for migration in migrations)
    return sorted((app, name) for app, _, name in split)


def last_ones(keys: Collection[Key], loader: MigrationLoader) -> list[Key]:
    """Those after which no other of the same app is applied: migrating to them applies all."""
    nodes = loader.graph.node_map
    return [
        key
        for key in keys
        if not any(child.key[0] == key[0] and child.key in keys for child in nodes[key].children)
    ]


def models_at(migrations: Iterable[str], loader: MigrationLoader) -> list[Model]:
    """The models of all tables of a database with these migrations, by their names.

    They are those of that time: a backup may be older than the code, or made before it migrates.

    Raises:
        UnknownMigrations: If the code is older.
    """
    keys = keys_of(migrations)
    unknown = [f"{app}.{name}" for app, name in keys if (app, name) not in loader.graph.nodes]
    if unknown:
        raise UnknownMigrations(", ".join(unknown))
    found = loader.project_state(keys).apps.get_models(include_auto_created=True)
    tables = (model for model in found if model._meta.managed and not model._meta.proxy)
    return sorted(tables, key=name_of)


def name_of(model: Model) -> str:
    """What a backup calls a table."""
    return model._meta.label_lower


def columns_of(model: Model) -> list[str]:
    """The columns of a table, as the model names them."""
    return [field.attname for field in model._meta.concrete_fields]


def stored(field: models.Field[Any, Any], value: object, connection: BaseDatabaseWrapper) -> Any:
    """A value from a backup as the database takes it."""
    return field.get_db_prep_save(field.to_python(value), connection)
