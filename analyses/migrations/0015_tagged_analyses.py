from django.db import migrations


class Migration(migrations.Migration):
    """An index by tag and analysis, so that the history of one tag is found within it.

    The table between the two has no model of ours that could name the index.
    """

    dependencies = [("analyses", "0014_counted_savings")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX tagged_analyses ON analyses_analysis_tags (tag_id, analysis_id)",
            "DROP INDEX tagged_analyses",
        ),
    ]
