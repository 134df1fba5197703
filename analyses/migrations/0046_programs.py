"""Analyses of somebody's own script are told apart by a hash; those of models have none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analyses", "0045_runs_of_other_models")]

    operations = [
        migrations.AddField(
            "analysis",
            "program_hash",
            models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AlterField(
            "analysis", "precision", models.CharField(blank=True, max_length=20)
        ),
        migrations.AlterField(
            "analysis", "optimizer", models.CharField(blank=True, max_length=20)
        ),
        migrations.AddIndex(
            "analysis",
            models.Index(
                condition=models.Q(program_hash__gt=""),
                fields=["program_hash", "-id"],
                name="of_a_program",
            ),
        ),
    ]
