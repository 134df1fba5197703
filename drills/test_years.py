"""Later stretches of time are copies of the first, and as whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyses.jobs import nodes
from analyses.models import Analysis, CountedSavings, Job, LogLine, Trial
from analyses.pages.history.labels import TAGGINGS
from analyses.tests.factories import make_result
from drills import years
from memorymark_site.accounts.models import AuditEntry

COUNT, STRETCH, TRIALS = 47, 20, 3


@pytest.mark.django_db
def test_a_lab_is_filled_with_whole_analyses_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(years, "_STRETCH", STRETCH)
    monkeypatch.setattr(nodes, "environment_here", dict)
    result = tmp_path / "result.json"
    result.write_text(json.dumps(make_result().to_dict()))

    found = years.fill(COUNT, str(result), members=5, trials=TRIALS)

    analyses = Analysis.objects.order_by("pk")
    times = list(analyses.values_list("queued_at", flat=True))
    assert found["analyses"] == len(times) == COUNT
    assert times == sorted(times)
    assert Trial.objects.count() == COUNT * TRIALS
    assert set(LogLine.objects.values_list("analysis", flat=True)) == {row.pk for row in analyses}
    assert Job.objects.filter(analysis__in=analyses).count() == COUNT
    assert analyses.values("request_hash").distinct().count() == COUNT
    assert TAGGINGS.count() == 5  # one in ten
    assert AuditEntry.objects.count() == analyses.exclude(adopted_at=None).count()
    workloads = analyses.filter(status="succeeded").values("workload_key").distinct()
    assert CountedSavings.objects.count() == workloads.count()
    keys = list(analyses.values_list("workload_key", flat=True))
    assert not set(keys[:STRETCH]) & set(keys[STRETCH : 2 * STRETCH])
    assert Analysis.objects.create(owner=analyses[0].owner, request={}).pk > analyses[COUNT - 1].pk
