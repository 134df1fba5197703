"""A notification is about an inbox entry, of whatever kind, instead of a mention."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analyses", "0051_mentions_in_the_inbox")]

    operations = [
        migrations.RemoveConstraint("notification", "told_once_by_a_channel"),
        migrations.RemoveConstraint("notification", "mentioned_once_by_a_channel"),
        migrations.RemoveField("notification", "mention"),
        migrations.AddConstraint(
            "notification",
            models.UniqueConstraint(
                condition=models.Q(("entry", None)),
                fields=("analysis", "channel"),
                name="told_once_by_a_channel",
            ),
        ),
        migrations.AddConstraint(
            "notification",
            models.UniqueConstraint(fields=("entry", "channel"), name="entry_once_by_a_channel"),
        ),
    ]
