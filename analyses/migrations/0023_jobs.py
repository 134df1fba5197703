"""One table of jobs takes over from three sets of columns, and from django-q2's own queue.

Whatever waits, runs or has ended gets its job, so an upgrade loses nothing. What runs belongs to
workers that are gone by now; recovery finds that by its last heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models
from django.utils import timezone

_AT_ONCE = 1000

_QUERY_STATES = {"waiting": "queued", "answered": "succeeded", "dropped": "cancelled"}
_NOTIFICATION_STATES = {
    "waiting": "queued", "sending": "running", "sent": "succeeded", "given_up": "failed",
}  # fmt: skip


def make_jobs(apps: Any, _schema_editor: Any) -> None:
    job = apps.get_model("analyses", "Job")
    for jobs in (_of_analyses(apps, job), _of_queries(apps, job), _of_notifications(apps, job)):
        while some := list(islice(jobs, _AT_ONCE)):
            job.objects.bulk_create(some)
    apps.get_model("django_q", "OrmQ").objects.all().delete()  # the jobs are the queue now


def _of_analyses(apps: Any, job: Any) -> Iterator[Any]:
    columns = (
        "pk", "status", "measured_gpu", "claim_token", "node", "device", "heartbeat_at", "attempt",
        "losses", "queued_at", "started_at", "finished_at",
    )  # fmt: skip
    now = timezone.now()
    for row in apps.get_model("analyses", "Analysis").objects.order_by("pk").values(*columns).iterator():
        yield job(
            kind="analysis",
            analysis_id=row["pk"],
            lane=f"measurements/{row['measured_gpu']}" if row["measured_gpu"] else "predictions",
            state=row["status"],
            token=row["claim_token"],
            node=row["node"],
            device=row["device"],
            heartbeat_at=row["heartbeat_at"] or now,
            attempts=row["attempt"],
            losses=row["losses"],
            queued_at=row["queued_at"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
        )


def _of_queries(apps: Any, job: Any) -> Iterator[Any]:
    columns = (
        "pk", "kind", "status", "claim_token", "node", "heartbeat_at", "tries", "for_pages",
        "created_at", "taken_at",
    )  # fmt: skip
    now = timezone.now()
    for row in apps.get_model("analyses", "Query").objects.order_by("pk").values(*columns).iterator():
        yield job(
            kind=row["kind"],
            query_id=row["pk"],
            lane="interactive" if row["kind"] == "predict" else "plans",
            priority=int(row["for_pages"]),
            state=_QUERY_STATES.get(row["status"], row["status"]),
            token=row["claim_token"],
            node=row["node"],
            heartbeat_at=row["heartbeat_at"] or now,
            attempts=row["tries"],
            losses=max(0, row["tries"] - 1),
            queued_at=row["created_at"],
            started_at=row["taken_at"],
            finished_at=row["heartbeat_at"],
        )


def _of_notifications(apps: Any, job: Any) -> Iterator[Any]:
    columns = ("pk", "status", "tries", "due_at", "node", "taken_at", "sent_at")
    now = timezone.now()
    for row in (
        apps.get_model("analyses", "Notification").objects.order_by("pk").values(*columns).iterator()
    ):
        has_ended = row["status"] in ("sent", "given_up")
        yield job(
            kind="notification",
            notification_id=row["pk"],
            lane="notifications",
            state=_NOTIFICATION_STATES[row["status"]],
            node=row["node"],
            heartbeat_at=row["taken_at"] or now,
            attempts=row["tries"],
            losses=row["tries"] if row["status"] == "waiting" else max(0, row["tries"] - 1),
            not_before=row["due_at"],
            queued_at=row["due_at"],
            started_at=row["taken_at"],
            finished_at=(row["sent_at"] or row["due_at"]) if has_ended else None,
        )


class Migration(migrations.Migration):

    dependencies = [
        ("analyses", "0022_has_gain"),
        ("django_q", "0007_ormq"),
    ]

    operations = [
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('analysis', 'Analysis'), ('predict', 'Prediction'), ('plan', 'Plan'), ('notification', 'Notification')], max_length=20)),
                ('lane', models.CharField(max_length=220)),
                ('priority', models.PositiveSmallIntegerField(default=0)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('cancelling', 'Cancelling'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled'), ('lost', 'Lost')], default='queued', max_length=20)),
                ('not_before', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('key', models.CharField(blank=True, max_length=16)),
                ('token', models.CharField(blank=True, max_length=32)),
                ('node', models.CharField(blank=True, max_length=200)),
                ('device', models.CharField(blank=True, max_length=100)),
                ('heartbeat_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('losses', models.PositiveSmallIntegerField(default=0)),
                ('queued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('analysis', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='job', to='analyses.analysis')),
                ('query', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='job', to='analyses.query')),
                ('notification', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='job', to='analyses.notification')),
            ],
            options={
                'ordering': ('-id',),
            },
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['state', 'lane', 'not_before'], name='analyses_jo_state_66a79f_idx'),
        ),
        migrations.RunPython(make_jobs, migrations.RunPython.noop),
    ]
