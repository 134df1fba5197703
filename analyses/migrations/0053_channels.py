"""Members choose what comes by which way, and the lab may have a channel."""

from typing import Any

from django.db import migrations, models

import analyses.models.notifications


def keep_what_was_sent(apps: Any, _schema_editor: Any) -> None:
    """Members who have chosen a channel go on getting what it brought then."""
    before = ["ended", "mention"]
    chosen = apps.get_model("analyses", "NotificationChoices").objects
    chosen.update(email_events=before, webhook_events=before)


def events() -> models.JSONField:
    return models.JSONField(default=analyses.models.notifications.all_events)


class Migration(migrations.Migration):
    dependencies = [("analyses", "0052_notifications_of_entries")]

    operations = [
        migrations.AddField("notificationchoices", "email_events", events()),
        migrations.AddField("notificationchoices", "webhook_events", events()),
        migrations.AddField("notificationchoices", "lab_channel_events", events()),
        migrations.AddField(
            "notificationchoices", "by_lab_channel", models.BooleanField(default=False)
        ),
        migrations.RunPython(keep_what_was_sent, migrations.RunPython.noop),
        migrations.AddField(
            "labsettings",
            "channel_format",
            models.CharField(
                blank=True,
                choices=[
                    ("slack", "Slack"),
                    ("mattermost", "Mattermost"),
                    ("teams", "Microsoft Teams"),
                ],
                max_length=20,
            ),
        ),
        migrations.AddField(
            "labsettings", "channel_url", models.CharField(blank=True, max_length=2000)
        ),
        migrations.AlterField(
            "notification",
            "channel",
            models.CharField(
                choices=[("email", "E-mail"), ("webhook", "Webhook"), ("lab", "Lab channel")],
                max_length=20,
            ),
        ),
    ]
