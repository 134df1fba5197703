"""Columns that the table of jobs has taken over stand there only."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("analyses", "0023_jobs")]

    operations = [
        migrations.RemoveConstraint(
            model_name='analysis',
            name='one_measurement_per_gpu',
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_status_b368aa_idx',
        ),
        migrations.RemoveIndex(
            model_name='notification',
            name='analyses_no_status_e1b589_idx',
        ),
        migrations.RemoveIndex(
            model_name='query',
            name='analyses_qu_status_487bbf_idx',
        ),
        migrations.RemoveField(
            model_name='analysis',
            name='claim_token',
        ),
        migrations.RemoveField(
            model_name='analysis',
            name='device',
        ),
        migrations.RemoveField(
            model_name='analysis',
            name='heartbeat_at',
        ),
        migrations.RemoveField(
            model_name='analysis',
            name='losses',
        ),
        migrations.RemoveField(
            model_name='notification',
            name='due_at',
        ),
        migrations.RemoveField(
            model_name='notification',
            name='node',
        ),
        migrations.RemoveField(
            model_name='notification',
            name='taken_at',
        ),
        migrations.RemoveField(
            model_name='notification',
            name='tries',
        ),
        migrations.RemoveField(
            model_name='query',
            name='claim_token',
        ),
        migrations.RemoveField(
            model_name='query',
            name='heartbeat_at',
        ),
        migrations.RemoveField(
            model_name='query',
            name='taken_at',
        ),
        migrations.RemoveField(
            model_name='query',
            name='tries',
        ),
        migrations.AlterField(
            model_name='analysis',
            name='queued_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('running', 'cancelling')), models.Q(('device', ''), _negated=True)), fields=('device',), name='one_measurement_per_gpu'),
        ),
    ]
