"""Training jobs that schedulers and experiment trackers report."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("analyses", "0048_recipes"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="TrainingJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reporter", models.CharField(max_length=20)),
                ("external_id", models.CharField(max_length=200)),
                ("user", models.CharField(blank=True, max_length=200)),
                ("name", models.CharField(blank=True, max_length=200)),
                ("gpu", models.CharField(blank=True, max_length=100)),
                ("device_name", models.CharField(blank=True, max_length=200)),
                ("gpus", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(db_index=True)),
                ("is_running", models.BooleanField(default=False)),
                ("total_bytes", models.BigIntegerField(blank=True, null=True)),
                ("used_bytes", models.BigIntegerField(blank=True, null=True)),
                ("samples_per_second", models.FloatField(blank=True, null=True)),
                ("model", models.CharField(blank=True, max_length=500)),
                ("request", models.JSONField(default=dict)),
                ("gpu_hours", models.FloatField()),
                ("used_byte_hours", models.FloatField(blank=True, null=True)),
                ("unused_byte_hours", models.FloatField(blank=True, null=True)),
                ("imported_at", models.DateTimeField(auto_now=True)),
                ("imported_by", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("owner", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="training_jobs", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "ordering": ("-id",),
                "constraints": [models.UniqueConstraint(fields=("reporter", "external_id"), name="one_row_of_a_training_job")],
            },
        ),
    ]
