"""Keeps pages fast in a long history.

A short row for each workload that counts as savings, also for what is stored already; and indexes
that hold all that the history filters by.
"""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import DateField, DateTimeField, F, Max, Q
from django.db.models.functions import Coalesce, TruncMonth

from ._indexes import falling

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
        ('analyses', '0013_lookups'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CountedSavings',
            fields=[
                ('analysis', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='counted_savings', serialize=False, to='analyses.analysis')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workload_key', models.CharField(max_length=64)),
                ('model', models.CharField(max_length=500)),
                ('gpu', models.CharField(max_length=100)),
                ('measured_gpu', models.CharField(blank=True, max_length=200)),
                ('month', models.DateField()),
                ('is_realised', models.BooleanField()),
                ('source', models.CharField(choices=[('measured', 'Measured'), ('predicted', 'Predicted'), ('assumed', 'Assumed')], max_length=20)),
                ('usd_per_year', models.FloatField()),
                ('gpu_hours_per_year', models.FloatField()),
            ],
            options={
                'verbose_name_plural': 'counted savings',
            },
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_model_569c47_idx',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_gpu_15bdb4_idx',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_precisi_090f0d_idx',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_status_194e67_idx',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_owner_i_a406db_idx',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_queued__0a4702_idx',
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['-id', 'model', 'gpu', 'measured_gpu', 'precision', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_id_80d882_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['model', '-id', 'gpu', 'measured_gpu', 'precision', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_model_59d75a_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['gpu', 'measured_gpu', '-id', 'model', 'precision', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_gpu_d35fcc_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['precision', '-id', 'model', 'gpu', 'measured_gpu', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_precisi_b31f0d_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['status', '-id', 'model', 'gpu', 'measured_gpu', 'precision', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_status_3cd37c_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['owner', '-id', 'model', 'gpu', 'measured_gpu', 'precision', 'status', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_owner_i_17bfb4_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['queued_at', '-id', 'model', 'gpu', 'measured_gpu', 'precision', 'status', 'owner', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_queued__b66b62_idx'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(condition=models.Q(('adopted_at__isnull', False)), fields=['-id', 'adopted_at'], name='adopted_ones'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['-usd_per_year', '-analysis'], name='largest_savings'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['owner', 'is_realised', 'source', 'usd_per_year', 'gpu_hours_per_year'], name='analyses_co_owner_i_c7cd5f_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['model', 'is_realised', 'source', 'usd_per_year', 'gpu_hours_per_year'], name='analyses_co_model_0adecd_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['gpu', 'measured_gpu', 'is_realised', 'source', 'usd_per_year', 'gpu_hours_per_year'], name='analyses_co_gpu_8d27e7_idx'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['month', 'is_realised', 'source', 'usd_per_year', 'gpu_hours_per_year'], name='analyses_co_month_b743c4_idx'),
        ),
        migrations.AddConstraint(
            model_name='countedsavings',
            constraint=models.UniqueConstraint(fields=('owner', 'workload_key'), name='a_workload_counts_once_for_its_owner'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['-id'], name='by_number'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['finished_at'], name='analyses_an_finishe_8541ef_idx'),
        ),
        falling(),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
