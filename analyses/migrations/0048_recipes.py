"""An analysis keeps what was read of the recipe that it was submitted with."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analyses", "0047_no_one_line")]

    operations = [
        migrations.AddField("analysis", "recipe", models.JSONField(blank=True, null=True)),
    ]
