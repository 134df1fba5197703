"""Early ladders had one line each, in a column that nothing has read since."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("analyses", "0046_programs")]

    operations = [migrations.RemoveField("query", "one_line")]
