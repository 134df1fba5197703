"""A run of another model, or with other releases, no longer verifies its analysis.

Only runs that verified so far are read, and few labs have many.
"""

from typing import Any

from django.db import migrations
from django.db.models import Min

from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.records.comparison import why_other_model
from engine.versions.software import minor

CHUNK = 500


def hold_against_models(apps: Any, _schema_editor: Any) -> None:
    Training = apps.get_model("analyses", "Training")
    runs = Training.objects.filter(verifies=True, analysis__isnull=False)
    columns = ("pk", "record", "analysis__request", "analysis__result__software")
    wrong = [pk for pk, *facts in runs.values_list(*columns).iterator(CHUNK) if _is_other(*facts)]
    _count_anew(apps, wrong)
    for first in range(0, len(wrong), CHUNK):
        Training.objects.filter(pk__in=wrong[first : first + CHUNK]).update(verifies=False)


def _is_other(record: dict[str, Any], request: dict[str, Any], software: Any) -> bool:
    """Whether a run was of another model or release, as ``why_not_verified`` has it."""
    ran = record.get("versions") or {}
    for package, used in (software or {}).items():
        if ran.get(package) and minor(ran[package]) != minor(used):
            return True
    try:
        workload = AnalysisRequest.parse(request).workload
    except InvalidInput:  # of another version, which nothing is held against any more
        return False
    return bool(why_other_model(record.get("model_name", ""), None, workload))


def _count_anew(apps: Any, wrong: list[int]) -> None:
    """Take what these runs saved out of the savings of their workloads."""
    RunSavings = apps.get_model("analyses", "RunSavings")
    CountedSavings = apps.get_model("analyses", "CountedSavings")
    keys: set[str] = set()
    for first in range(0, len(wrong), CHUNK):
        saved = RunSavings.objects.filter(training__in=wrong[first : first + CHUNK])
        keys |= set(saved.values_list("workload_key", flat=True))
        saved.delete()
    for key in keys:
        day = RunSavings.objects.filter(workload_key=key).aggregate(day=Min("day"))["day"]
        verified = {"is_verified": False, "assumed_until": NO_RUN_YET}
        if day is not None:
            verified = {"is_verified": True, "assumed_until": day - 1}
        CountedSavings.objects.filter(workload_key=key).update(**verified)
    if keys:
        apps.get_model("analyses", "SavingsChange").objects.create(mark=1)


NO_RUN_YET = 3_652_059


class Migration(migrations.Migration):
    dependencies = [
        ("analyses", "0044_stored_decisions"),
    ]

    operations = [
        migrations.RunPython(hold_against_models, migrations.RunPython.noop, elidable=True),
    ]
