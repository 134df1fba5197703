"""Renames the model of recorded training runs; its table keeps its name, so no row is touched."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("analyses", "0056_matched_jobs")]

    operations = [
        migrations.AlterModelTable("training", "analyses_training"),
        migrations.RenameModel("Training", "TrainingRun"),
    ]
