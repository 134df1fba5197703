"""Adds the ladders that are pushed with scripts."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0058_decide_what_does_not_fit'),
    ]

    operations = [
        migrations.CreateModel(
            name='PushedLadder',
            fields=[
                ('analysis', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='pushed_ladder', serialize=False, to='analyses.analysis')),
                ('rungs', models.JSONField()),
            ],
        ),
    ]
