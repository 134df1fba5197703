from django.db import migrations

from ._indexes import of_one_tag


class Migration(migrations.Migration):
    """An index by tag and analysis, so that the history of one tag is found within it.

    The table between the two has no model of ours that could name the index.
    """

    dependencies = [("analyses", "0014_counted_savings")]

    operations = [of_one_tag()]
