"""Earlier mentions come into the inbox, as read: their members were notified of them then."""

from typing import Any

from django.db import migrations


def add_entries(apps: Any, _schema_editor: Any) -> None:
    Mention = apps.get_model("analyses", "Mention")
    Entry = apps.get_model("analyses", "InboxEntry")
    Notification = apps.get_model("analyses", "Notification")
    for mention in Mention.objects.select_related("analysis").order_by("pk"):
        entry = Entry.objects.create(
            member_id=mention.analysis.owner_id,
            kind="mention",
            analysis_id=mention.analysis_id,
            mention=mention,
            at=mention.at,
            read_at=mention.at,
        )
        Notification.objects.filter(mention=mention).update(entry=entry)


class Migration(migrations.Migration):
    dependencies = [("analyses", "0050_inbox")]

    operations = [migrations.RunPython(add_entries, migrations.RunPython.noop)]
