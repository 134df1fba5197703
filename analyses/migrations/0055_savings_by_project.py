"""Counted savings have the project of their analysis, so that totals are by project too."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def copy_projects(apps: Any, _schema_editor: Any) -> None:
    """Take over the projects of the analyses that count."""
    counted, runs = (apps.get_model('analyses', name) for name in ('CountedSavings', 'RunSavings'))
    of_analysis = apps.get_model('analyses', 'Analysis').objects.filter(pk=OuterRef('analysis'))
    found = counted.objects.filter(analysis__project__isnull=False)
    found.update(project=Subquery(of_analysis.values('project')[:1]))
    of_workload = counted.objects.filter(workload_key=OuterRef('workload_key'))
    runs.objects.update(project=Subquery(of_workload.values('project')[:1]))


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0054_projects'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='countedsavings',
            name='project',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='analyses.project'),
        ),
        migrations.AddField(
            model_name='runsavings',
            name='project',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='analyses.project'),
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['project', 'is_realised', 'is_verified', 'source', 'usd_per_year', 'usd_per_year_low', 'usd_per_year_high', 'gpu_hours_per_year', 'kwh_per_year', 'kg_co2e_per_year', 'since_day', 'assumed_until'], name='analyses_co_project_c310be_idx'),
        ),
        # Last: PostgreSQL changes no table with rows whose keys it has still to check.
        migrations.RunPython(copy_projects, migrations.RunPython.noop),
    ]
