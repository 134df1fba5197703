"""Indexes that the history is sorted and filtered by, and that no model can name."""

from __future__ import annotations

from typing import Any

from django.db import migrations

_EMPTY_WITHOUT_ANSWER = (
    "recommended_batch_size", "largest_batch_size", "speedup", "usd_per_year",
)  # fmt: skip


def _add_falling(_apps: Any, schema_editor: Any) -> None:
    """PostgreSQL's rising indexes, read backwards, have what is empty first, and lists last.

    SQLite's have it last, and it knows no other; so these are no indexes of the model.
    """
    if schema_editor.connection.vendor == "postgresql":
        for column in _EMPTY_WITHOUT_ANSWER:
            schema_editor.execute(
                f"CREATE INDEX analyses_falling_{column} "
                f"ON analyses_analysis ({column} DESC NULLS LAST, id)"
            )


def _remove_falling(_apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for column in _EMPTY_WITHOUT_ANSWER:
            schema_editor.execute(f"DROP INDEX analyses_falling_{column}")


def falling() -> migrations.RunPython:
    """Indexes with the largest number first and what is empty last."""
    return migrations.RunPython(_add_falling, _remove_falling)


def of_one_tag() -> migrations.RunSQL:
    """An index by tag and analysis, so that the history of one tag is found within it."""
    return migrations.RunSQL(
        "CREATE INDEX tagged_analyses ON analyses_analysis_tags (tag_id, analysis_id)",
        "DROP INDEX tagged_analyses",
    )
