"""Has the plans of what does not fit read again: until now they decided nothing."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def read_again(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    """A plan whose first rung, today's settings, does not fit is taken over once more."""
    query = apps.get_model("analyses", "Query")
    plans = query.objects.filter(kind="plan", status="answered", is_taken_over=True)
    unfit = [
        pk
        for pk, answer in plans.values_list("pk", "answer").iterator()
        if answer and any(_is_unfit(rung) for rung in answer.get("ladder") or [])
    ]
    query.objects.filter(pk__in=unfit).update(is_taken_over=False)


def _is_unfit(rung: dict[str, object]) -> bool:
    return not rung.get("fields") and not rung.get("fits")


class Migration(migrations.Migration):
    dependencies = [("analyses", "0057_training_run")]

    operations = [migrations.RunPython(read_again, migrations.RunPython.noop)]
