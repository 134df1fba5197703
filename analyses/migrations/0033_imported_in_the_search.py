"""Saved views find imported analyses by a word in their search, not by a filter of its own."""

from typing import Any

from django.db import migrations
from django.http import QueryDict


def move_to_the_search(apps: Any, schema_editor: Any) -> None:
    for view in apps.get_model("analyses", "SavedView").objects.filter(query__contains="pushed="):
        fields = QueryDict(view.query, mutable=True)
        words = {"yes": "imported", "no": "-imported"}
        word = words.get((fields.pop("pushed", None) or [""])[-1], "")
        fields["q"] = " ".join(filter(None, [fields.get("q", ""), word]))
        view.query = fields.urlencode()
        view.save(update_fields=["query"])


class Migration(migrations.Migration):
    dependencies = [("analyses", "0032_lengths_in_a_batch")]

    operations = [migrations.RunPython(move_to_the_search, migrations.RunPython.noop)]
