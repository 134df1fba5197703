"""Samples per second by batch size of the analyses in a list."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.models import Trial

Speeds = list[tuple[int, float]]
"""Batch sizes, rising, with their samples per second."""


def speeds_of(ids: Sequence[int]) -> dict[int, Speeds]:
    """The speeds of the batches that fit, by analysis; a later attempt's trial counts."""
    found: dict[int, dict[int, float]] = {}
    timed = Trial.objects.filter(
        analysis__in=ids, fits=True, samples_per_second__isnull=False
    ).order_by("batch_size", "attempt", "pk")
    for pk, batch, speed in timed.values_list("analysis_id", "batch_size", "samples_per_second"):
        found.setdefault(pk, {})[batch] = speed or 0.0
    return {pk: list(speeds.items()) for pk, speeds in found.items()}
