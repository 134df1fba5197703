"""A workload counts once for the lab, with its interval, from its day on, and by its training runs.

What counted until now, once for each owner, was taken from the analyses, so it is counted anew.
"""

from datetime import UTC, datetime
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import FloatField, Max, Q
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from analyses.savings.certainty import NOTHING, counted

CHUNK = 500
REPEATED = ("workload_key", "model", "gpu", "measured_gpu", "source")
IN_RESULT = {
    "speedup": "speedup",
    "speedup_low": "speedup_low",
    "speedup_high": "speedup_high",
    "price": "savings__price_per_hour_usd",
}


def time_runs(apps: Any, _schema_editor: Any) -> None:
    """GPU-hours in training steps, as ``training_runs.services.step_gpu_hours`` has them."""
    Training = apps.get_model("analyses", "Training")
    timed = Training.objects.filter(samples_per_second__gt=0).only("record", "samples_per_second")
    for run in timed.iterator(CHUNK):
        record = run.record
        started, ended = (
            datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at")
        )
        took = (ended - started).total_seconds()
        seconds = min(record["samples"] / run.samples_per_second, took)
        hours = seconds / 3600 * record["world_size"]
        Training.objects.filter(pk=run.pk).update(gpu_hours=hours)


def fill(apps: Any, _schema_editor: Any) -> None:
    CountedSavings = apps.get_model("analyses", "CountedSavings")
    RunSavings = apps.get_model("analyses", "RunSavings")
    runs = _runs_by_workload(apps)
    rows, saved = [], []
    for analysis in _counting(apps).iterator(CHUNK):
        columns = _columns(analysis)
        if analysis["adopted_at"] is not None:
            for run in runs.get(analysis["workload_key"], ()):
                saved.append(RunSavings(**_run(run, columns, analysis["price_"] or 0.0)))
                day = saved[-1].day
                columns["assumed_until"] = min(columns.get("assumed_until", day), day - 1)
                columns["is_verified"] = True
        rows.append(CountedSavings(**columns))
    CountedSavings.objects.bulk_create(rows, batch_size=CHUNK)
    RunSavings.objects.bulk_create(saved, batch_size=CHUNK)


def _counting(apps: Any) -> Any:
    """One analysis for each workload, the newest adopted one or else the newest."""
    Analysis = apps.get_model("analyses", "Analysis")
    one_each = (
        Analysis.objects.filter(status="succeeded")
        .exclude(current_batch_size=None)
        .order_by()
        .values("workload_key")
        .annotate(counted=Coalesce(Max("pk", filter=Q(adopted_at__isnull=False)), Max("pk")))
    )
    return _with_result(Analysis.objects.filter(pk__in=one_each.values("counted")))


def _with_result(analyses: Any) -> Any:
    found = {name: Cast(KT(f"result__{path}"), FloatField()) for name, path in IN_RESULT.items()}
    found = {f"{name}_": value for name, value in found.items()}  # no column has these names
    return analyses.annotate(**found).values(
        "pk", "owner_id", "adopted_by_id", "adopted_at", "finished_at", "queued_at", "has_gain",
        "usd_per_year", "gpu_hours_per_year", "kwh_per_year", "kg_co2e_per_year", *REPEATED, *found,
    )  # fmt: skip


def _runs_by_workload(apps: Any) -> dict[str, list[dict[str, Any]]]:
    """The verifying training runs, each with the fields of its analysis."""
    Training = apps.get_model("analyses", "Training")
    Analysis = apps.get_model("analyses", "Analysis")
    runs = list(
        Training.objects.filter(verifies=True, analysis__isnull=False).values(
            "pk", "analysis_id", "gpu_hours", "recorded_at"
        )
    )
    named = {run["analysis_id"] for run in runs}
    analyses = {row["pk"]: row for row in _with_result(Analysis.objects.filter(pk__in=named))}
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        analysis = analyses[run["analysis_id"]]
        run["factors"] = _factors(analysis)
        found.setdefault(analysis["workload_key"], []).append(run)
    return found


def _factors(analysis: dict[str, Any]) -> Any:
    result = {name: analysis[f"{name}_"] for name in ("speedup", "speedup_low", "speedup_high")}
    return counted(analysis["source"], result) if analysis["has_gain"] else NOTHING


def _columns(analysis: dict[str, Any]) -> dict[str, Any]:
    since = analysis["adopted_at"] or analysis["finished_at"] or analysis["queued_at"]
    day = since.astimezone(UTC).date()
    factors = _factors(analysis)
    usd, hours = analysis["usd_per_year"] or 0.0, analysis["gpu_hours_per_year"] or 0.0
    energy = {
        name: None if analysis[name] is None else analysis[name] * factors.value
        for name in ("kwh_per_year", "kg_co2e_per_year")
    }
    return {
        "analysis_id": analysis["pk"],
        "member_id": analysis["adopted_at"] and analysis["adopted_by_id"] or analysis["owner_id"],
        "month": day.replace(day=1),
        "since_day": day.toordinal(),
        "is_realised": analysis["adopted_at"] is not None,
        "at_low_end": factors.at_low_end,
        "usd_per_year": usd * factors.value,
        "usd_per_year_low": usd * factors.low,
        "usd_per_year_high": usd * factors.high,
        "gpu_hours_per_year": hours * factors.value,
        **{name: analysis[name] for name in REPEATED},
        **energy,
    }


def _run(run: dict[str, Any], columns: dict[str, Any], price: float) -> dict[str, Any]:
    factors, hours = run["factors"], run["gpu_hours"]
    repeated = ("workload_key", "member_id", "model", "gpu", "measured_gpu", "month")
    return {
        "training_id": run["pk"],
        "day": run["recorded_at"].astimezone(UTC).date().toordinal(),
        "gpu_hours": hours * factors.per_gpu_hour,
        "usd": hours * price * factors.per_gpu_hour,
        "usd_low": hours * price * factors.per_gpu_hour_low,
        "usd_high": hours * price * factors.per_gpu_hour_high,
        **{name: columns[name] for name in repeated},
    }


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0033_imported_in_the_search'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.DeleteModel(name='CountedSavings'),
        migrations.CreateModel(
            name='CountedSavings',
            fields=[
                ('analysis', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='counted_savings', serialize=False, to='analyses.analysis')),
                ('workload_key', models.CharField(max_length=64, unique=True)),
                ('model', models.CharField(max_length=500)),
                ('gpu', models.CharField(max_length=100)),
                ('measured_gpu', models.CharField(blank=True, max_length=200)),
                ('month', models.DateField()),
                ('since_day', models.IntegerField()),
                ('assumed_until', models.IntegerField(default=3652059)),
                ('is_realised', models.BooleanField()),
                ('is_verified', models.BooleanField(default=False)),
                ('source', models.CharField(choices=[('measured', 'Measured'), ('predicted', 'Predicted'), ('computed', 'Computed'), ('assumed', 'Assumed')], max_length=20)),
                ('at_low_end', models.BooleanField(default=False)),
                ('usd_per_year', models.FloatField()),
                ('usd_per_year_low', models.FloatField()),
                ('usd_per_year_high', models.FloatField()),
                ('gpu_hours_per_year', models.FloatField()),
                ('kwh_per_year', models.FloatField(null=True)),
                ('kg_co2e_per_year', models.FloatField(null=True)),
            ],
            options={
                'verbose_name_plural': 'counted savings',
            },
        ),
        migrations.CreateModel(
            name='RunSavings',
            fields=[
                ('training', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='savings', serialize=False, to='analyses.training')),
                ('workload_key', models.CharField(db_index=True, max_length=64)),
                ('model', models.CharField(max_length=500)),
                ('gpu', models.CharField(max_length=100)),
                ('measured_gpu', models.CharField(blank=True, max_length=200)),
                ('month', models.DateField()),
                ('is_realised', models.BooleanField(default=True)),
                ('day', models.IntegerField()),
                ('usd', models.FloatField()),
                ('usd_low', models.FloatField()),
                ('usd_high', models.FloatField()),
                ('gpu_hours', models.FloatField()),
            ],
            options={
                'verbose_name_plural': 'run savings',
            },
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_status_7c4bd8_idx',
        ),
        migrations.AddField(
            model_name='training',
            name='gpu_hours',
            field=models.FloatField(default=0.0),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['workload_key', 'status', 'adopted_at'], name='analyses_an_workloa_68f35d_idx'),
        ),
        migrations.AddField(
            model_name='countedsavings',
            name='member',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='runsavings',
            name='member',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['-usd_per_year', '-analysis', 'is_realised', 'is_verified', 'month'], name='largest_savings'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['is_realised', 'since_day', 'assumed_until', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year'], name='accruing_savings'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['member', 'is_realised', 'is_verified', 'source', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year', 'kwh_per_year', 'kg_co2e_per_year', 'since_day', 'assumed_until'], name='analyses_co_member__9e0b5f_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['model', 'is_realised', 'is_verified', 'source', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year', 'kwh_per_year', 'kg_co2e_per_year', 'since_day', 'assumed_until'], name='analyses_co_model_327ad4_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['gpu', 'measured_gpu', 'is_realised', 'is_verified', 'source', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year', 'kwh_per_year', 'kg_co2e_per_year', 'since_day', 'assumed_until'], name='analyses_co_gpu_cfd835_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['month', 'is_realised', 'is_verified', 'source', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year', 'kwh_per_year', 'kg_co2e_per_year', 'since_day', 'assumed_until'], name='analyses_co_month_0b0c29_idx'),
        ),
        migrations.AddIndex(
            model_name='runsavings',
            index=models.Index(fields=['day', 'usd', 'usd_low', 'usd_high', 'gpu_hours'], name='saved_by_day'),
        ),
        migrations.RunPython(time_runs, migrations.RunPython.noop),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
