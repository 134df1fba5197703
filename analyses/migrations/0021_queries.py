"""Lookups are called queries, and what is equal for equal requests a request hash."""

from django.conf import settings
from django.db import migrations, models

SHARED = ("waiting", "running", "answered")


class Migration(migrations.Migration):

    dependencies = [
        ("analyses", "0020_quick_indexes"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex("analysis", "analyses_an_questio_650538_idx"),
        migrations.RenameField("analysis", "question", "request_hash"),
        migrations.AddIndex(
            "analysis",
            models.Index(fields=["request_hash", "status"], name="analyses_an_request_109e4d_idx"),
        ),
        migrations.RemoveIndex("lookup", "analyses_lo_status_f56f52_idx"),
        migrations.RemoveConstraint("lookup", "one_lookup_of_a_question"),
        migrations.RenameModel("Lookup", "Query"),
        migrations.RenameField("query", "ask", "kind"),
        migrations.RenameField("query", "question", "request_hash"),
        migrations.AlterField(
            "query",
            "askers",
            models.ManyToManyField(related_name="queries", to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            "query", models.Index(fields=["status", "kind"], name="analyses_qu_status_487bbf_idx")
        ),
        migrations.AddConstraint(
            "query",
            models.UniqueConstraint(
                fields=("request_hash",),
                condition=models.Q(("status__in", SHARED), models.Q(("request_hash", ""), _negated=True)),
                name="one_query_of_a_request",
            ),
        ),
        migrations.AlterModelOptions(
            "query", options={"ordering": ("-id",), "verbose_name_plural": "queries"}
        ),
    ]
