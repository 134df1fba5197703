"""Predicts what the stored result of ``accuracy`` lacks; all its rows take most of an hour.

A row says when it was predicted and with which versions; the file around them, when all were last
predicted. The runs of xMem, and what other estimators say, stay as they were then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.accuracy import comparing, to_dict
from benchmarks.published import (
    PUBLISHED,
    Comparison,
    Measurement,
    read_measurements,
    summarize,
)
from benchmarks.results.files import Result


def renewed(stored: Result, again: Sequence[str]) -> Iterator[Result]:
    """The result of ``accuracy`` after each measurement that is predicted anew, and at the end.

    Args:
        stored: The result so far; what has not changed in ``published.toml`` since is kept.
        again: Measurements with one of these in their name are predicted again.
    """
    measurements = read_measurements(PUBLISHED.read_text(encoding="utf-8"))
    known = still_known(measurements, stored.figures["comparisons"])
    asked = [
        measurement
        for measurement in measurements
        if measurement.name not in known
        or any(words.lower() in measurement.name.lower() for words in again)
    ]
    yield _with(stored, measurements, known)
    with comparing(asked) as pending:
        for comparison in pending:
            known[comparison.measurement.name] = comparison
            yield _with(stored, measurements, known)


def _with(
    stored: Result, measurements: Sequence[Measurement], known: Mapping[str, Comparison]
) -> Result:
    comparisons = [known[one.name] for one in measurements if one.name in known]
    return replace(
        stored,
        figures=stored.figures | to_dict(comparisons, summarize(comparisons)),
        exit_status=int(any(comparison.failure for comparison in comparisons)),
    )


def still_known(
    measurements: Sequence[Measurement], stored: Sequence[Mapping[str, Any]]
) -> dict[str, Comparison]:
    """The stored comparisons, by name, of measurements that have not changed since."""
    earlier = {one.measurement.name: one for one in map(Comparison.read, stored)}
    return {
        measurement.name: earlier[measurement.name]
        for measurement in measurements
        if measurement.name in earlier and earlier[measurement.name].measurement == measurement
    }
