"""A short row for each workload that counts as savings, also for what is stored already."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import DateField, DateTimeField, F, Max, Q
from django.db.models.functions import Coalesce, TruncMonth

CHUNK = 500
REPEATED = (
    "owner_id", "workload_key", "model", "gpu", "measured_gpu", "source",
    "usd_per_year", "gpu_hours_per_year",
)


def fill(apps: Any, _schema_editor: Any) -> None:
    Analysis = apps.get_model("analyses", "Analysis")
    CountedSavings = apps.get_model("analyses", "CountedSavings")
    one_each = (
        Analysis.objects.filter(status="succeeded")
        .order_by()
        .values("owner", "workload_key")
        .annotate(counted=Coalesce(Max("pk", filter=Q(adopted_at__isnull=False)), Max("pk")))
    )
    since = Coalesce("adopted_at", "finished_at", "queued_at", output_field=DateTimeField())
    counting = (
        Analysis.objects.filter(pk__in=one_each.values("counted"))
        .annotate(month=TruncMonth(since, output_field=DateField()))
        .values("month", "adopted_at", *REPEATED, analysis_id=F("pk"))
    )
    rows = [
        CountedSavings(
            is_realised=row.pop("adopted_at") is not None,
            usd_per_year=row.pop("usd_per_year") or 0.0,
            gpu_hours_per_year=row.pop("gpu_hours_per_year") or 0.0,
            **row,
        )
        for row in counting.iterator(CHUNK)
    ]
    CountedSavings.objects.bulk_create(rows, batch_size=CHUNK)


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0009_saved_views'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CountedSavings',
            fields=[
                ('analysis', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='counted_savings', serialize=False, to='analyses.analysis')),
                ('workload_key', models.CharField(max_length=64)),
                ('model', models.CharField(max_length=500)),
                ('gpu', models.CharField(max_length=100)),
                ('measured_gpu', models.CharField(blank=True, max_length=200)),
                ('month', models.DateField()),
                ('is_realised', models.BooleanField()),
                ('source', models.CharField(choices=[('measured', 'Measured'), ('predicted', 'Predicted'), ('assumed', 'Assumed')], max_length=20)),
                ('usd_per_year', models.FloatField()),
                ('gpu_hours_per_year', models.FloatField()),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'counted savings',
                'indexes': [models.Index(fields=['-usd_per_year', '-analysis'], name='largest_savings')],
                'constraints': [models.UniqueConstraint(fields=('owner', 'workload_key'), name='a_workload_counts_once_for_its_owner')],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
