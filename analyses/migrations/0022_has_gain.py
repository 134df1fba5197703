"""Stores whether a speedup is a gain, which was inferred from the money it saves."""

from typing import Any

from django.db import migrations, models

CHUNK = 500


def is_gain(result: dict[str, Any]) -> bool:
    savings = result.get("savings")
    if savings is None:
        return False
    if result.get("speedup_low") is not None:
        return bool(result["speedup_low"] > 1)
    # An older version stored no interval, but counted no savings from noise.
    nothing_to_save = savings["hours_per_run"] * savings["runs_per_year"] == 0
    return bool(result["speedup"] > 1 and (savings["gpu_hours_per_year"] > 0 or nothing_to_save))


def fill(apps: Any, _schema_editor: Any) -> None:
    Analysis = apps.get_model("analyses", "Analysis")
    answered = Analysis.objects.filter(speedup__isnull=False, result__isnull=False)
    pks = list(answered.order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(pks), CHUNK):
        chunk = Analysis.objects.filter(pk__in=pks[start : start + CHUNK])
        results = chunk.values_list("pk", "result")
        gains = {pk for pk, result in results if is_gain(result)}
        chunk.update(has_gain=False)
        chunk.filter(pk__in=gains).update(has_gain=True)


class Migration(migrations.Migration):
    dependencies = [("analyses", "0021_queries")]

    operations = [
        migrations.AddField(
            model_name="analysis",
            name="has_gain",
            field=models.BooleanField(blank=True, null=True),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
    ]
