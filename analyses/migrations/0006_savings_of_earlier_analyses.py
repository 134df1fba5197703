"""Gives the analyses that are stored already what their savings are counted by."""

from typing import Any

from django.db import migrations
from django.db.models import FloatField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from analyses.savings.aggregation import workload_key

CHUNK = 500


def fill(apps: Any, _schema_editor: Any) -> None:
    Analysis = apps.get_model("analyses", "Analysis")
    Analysis.objects.filter(result__isnull=False).update(
        gpu_hours_per_year=Cast(KT("result__savings__gpu_hours_per_year"), FloatField())
    )
    asked = Analysis.objects.values_list("pk", "request", "measured_gpu")
    keyed = [
        Analysis(pk=pk, workload_key=workload_key(request, measured_gpu))
        for pk, request, measured_gpu in asked.iterator(CHUNK)
    ]
    Analysis.objects.bulk_update(keyed, ["workload_key"], batch_size=CHUNK)


class Migration(migrations.Migration):

    dependencies = [("analyses", "0005_savings")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
