"""Members get an inbox, of whose entries mentions are one kind."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [
        ("analyses", "0049_training_jobs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="InboxEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("mention", "Mentioned"),
                            ("decision", "Decision waiting"),
                            ("failed", "Failed"),
                            ("verified", "Prediction verified"),
                            ("missed", "Prediction missed"),
                            ("advice", "Advice for your job"),
                        ],
                        max_length=20,
                    ),
                ),
                ("text", models.CharField(blank=True, max_length=300)),
                ("at", models.DateTimeField(db_default=Now())),
                ("read_at", models.DateTimeField(blank=True, null=True)),
                (
                    "analysis",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="inbox_entries",
                        to="analyses.analysis",
                    ),
                ),
                (
                    "member",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="inbox",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "mention",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entry",
                        to="analyses.mention",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "inbox entries",
                "ordering": ("-id",),
                "indexes": [
                    models.Index(fields=["member", "-id"], name="inbox_of_a_member"),
                    models.Index(
                        condition=models.Q(("read_at", None)),
                        fields=["member"],
                        name="unread_of_a_member",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("mention", None)),
                        fields=("analysis", "kind", "member"),
                        name="one_entry_of_a_kind",
                    )
                ],
            },
        ),
        migrations.AddField(
            "notification",
            "entry",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notifications",
                to="analyses.inboxentry",
            ),
        ),
    ]
