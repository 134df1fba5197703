"""Runs of trackers are matched with the scheduler's jobs that they are part of."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0055_savings_by_project'),
    ]

    operations = [
        migrations.AddField(
            model_name='trainingjob',
            name='from_runs',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='trainingjob',
            name='hosts',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='trainingjob',
            name='scheduler_job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='analyses.trainingjob'),
        ),
        migrations.AddField(
            model_name='trainingjob',
            name='slurm_job_id',
            field=models.CharField(blank=True, db_index=True, max_length=200),
        ),
    ]
