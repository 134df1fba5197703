"""Upgrades a lab from an earlier version."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.apps import apps
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState
from django.utils import timezone

from analyses.tests.factories import make_request, make_result
from analyses.tests.first_version import of_first_version
from memorymark_site.operations.backup import steps

_APP = "analyses"


def rows_after(name: str) -> dict[str, Any]:
    """Migrate to an old state, put a row into each table, then migrate to the newest state.

    Args:
        name: Name of the migration to start from.

    Returns:
        ``before`` and ``after``: row counts by table. ``analysis``: its values afterwards.
        ``expected``: the values it should have.
    """
    state = _migrate(name)
    made: dict[str, models.Model] = {}
    for model in state.apps.get_app_config(_APP).get_models(include_auto_created=True):
        _make(model, made)
    before = {_RENAMED.get(label, label): 1 for label in made if label.startswith(f"{_APP}.")}
    newest = MigrationExecutor(connection)
    newest.migrate(newest.loader.graph.leaf_nodes())
    tables = apps.get_app_config(_APP).get_models(include_auto_created=True)
    analysis = apps.get_model(_APP, "Analysis")._base_manager.values().get()
    return {
        "before": before,
        "after": {model._meta.label_lower: model._base_manager.count() for model in tables},
        "analysis": {key: analysis[key] for key in ("model", "status", "request", "result")},
        "expected": {name: value for name, value in _analysis().items() if name in _COMPARED},
    }


def tables_after(name: str) -> dict[str, Any]:
    """The tables of a lab that took every step up to one."""
    _migrate(name)
    return tables()


def tables() -> dict[str, Any]:
    """The columns of each table, and its indexes and constraints, whose names may differ."""
    inspect = connection.introspection
    with connection.cursor() as cursor:
        return {
            name: {
                "columns": sorted(
                    (column.name, str(column.type_code), column.null_ok, column.default)
                    for column in inspect.get_table_description(cursor, name)
                ),
                "constraints": sorted(map(repr, inspect.get_constraints(cursor, name).values())),
            }
            for name in inspect.table_names(cursor)
        }


_RENAMED = {"analyses.lookup": "analyses.query", "analyses.lookup_askers": "analyses.query_askers"}
_COMPARED = ("model", "status", "request", "result")


def _migrate(name: str) -> ProjectState:
    """Migrate a new database step by step, as labs of that time did; returns the models."""
    executor = MigrationExecutor(connection)
    executor.loader = steps(connection)
    others = [key for key in executor.loader.graph.leaf_nodes() if key[0] != _APP]
    executor.migrate([(_APP, name), *others])
    return executor.loader.project_state([(_APP, name), *others])


def _make(model: type[models.Model], made: dict[str, models.Model]) -> models.Model:
    """Create the one row of a table, and the rows it points to."""
    label = model._meta.label_lower
    if label not in made:
        special = _analysis() if label == f"{_APP}.analysis" else {}
        values = {}
        for field in model._meta.concrete_fields:
            if field.name in special:
                values[field.name] = special[field.name]
            elif not (isinstance(field, models.AutoField) or field.null or field.has_default()):
                values[field.name] = _value(field, made)
        made[label] = model._base_manager.create(**values)
    return made[label]


def _value(field: models.Field[Any, Any], made: dict[str, models.Model]) -> object:
    if isinstance(field, models.ForeignKey):
        target = field.related_model
        assert isinstance(target, type)  # noqa: S101  # a state has no open references
        return _make(target, made)
    if isinstance(field, models.UUIDField):
        return uuid4()
    if isinstance(field, models.DateTimeField):
        return timezone.now()
    if isinstance(field, models.DateField):
        return timezone.now().date()
    if field.choices:
        return next(iter(field.choices))[0]
    if isinstance(field, models.JSONField):
        return {}
    if isinstance(field, models.BooleanField):
        return False
    return "x" if isinstance(field, models.CharField | models.TextField) else 1


def _analysis() -> dict[str, Any]:
    """An analysis that succeeded in the first version."""
    result = make_result()
    return {
        "request": make_request(),
        "result": of_first_version(result),
        "model": "bert",
        "gpu": "a10",
        "status": "succeeded",
        "source": "predicted",
        "finished_at": timezone.now(),
        "current_batch_size": result.current_batch_size,
        "recommended_batch_size": result.recommended_batch_size,
        "speedup": result.speedup,
    }
