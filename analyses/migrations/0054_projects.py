"""Analyses belong to projects of the lab."""

import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0053_channels'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
            ],
            options={
                'ordering': ('name',),
                'constraints': [models.UniqueConstraint(django.db.models.functions.text.Lower('name'), name='one_project_by_a_name')],
            },
        ),
        migrations.AddField(
            model_name='analysis',
            name='project',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='analyses', to='analyses.project'),
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['project', '-id', 'model', 'gpu', 'measured_gpu', 'precision', 'software', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_project_87f7a4_idx'),
        ),
    ]
