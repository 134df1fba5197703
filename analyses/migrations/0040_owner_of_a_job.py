"""Give each job its analysis's owner, and an index that finds whose turn it is.

Only jobs that may still wait need the owner; in a large lab almost all have ended.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import OuterRef, Subquery

UNFINISHED = ("queued", "running", "cancelling")


def repeat_owners(apps: StateApps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    owner = apps.get_model("analyses", "Analysis").objects.filter(pk=OuterRef("analysis"))
    jobs = apps.get_model("analyses", "Job").objects.filter(state__in=UNFINISHED)
    jobs.exclude(analysis=None).update(owner=Subquery(owner.values("owner")))


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("analyses", "0039_units_of_the_api"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="owner",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunPython(repeat_owners, migrations.RunPython.noop),
        migrations.RemoveIndex(model_name="job", name="analyses_jo_state_66a79f_idx"),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["state", "lane", "-priority", "owner", "id"], name="waiting_jobs"
            ),
        ),
    ]
