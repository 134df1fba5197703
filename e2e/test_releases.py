"""Two releases compared in a real browser: what changed, and taking it along."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from analyses.tests.factories import make_result
from e2e import doing
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Account, Site
from engine.interface.request import AnalysisRequest
from engine.interface.result import OperationTime, StepProfile, TensorGroup

pytestmark = pytest.mark.e2e

MODULE = "bert.encoder.layer.*.attention.self"


def document(transformers: str, activations: int) -> dict[str, Any]:
    """An analysis that ran elsewhere with a release, as ``memorymark push`` sends it."""
    tensors = [TensorGroup(MODULE, "aten.bmm", "activations", 12, activations)]
    profile = StepProfile(16, "backward", tensors, [OperationTime("aten.bmm", 12, 0.01)])
    software = {"transformers": transformers, "torch": "2.13.0+cpu"}
    chosen = f"transformers={transformers}"
    asked = {"model": "bert", "gpu": "a10", "software": chosen, "current_batch_size": 16}
    request = AnalysisRequest.parse(asked).to_dict()
    result = make_result()
    assert result.workload is not None
    workload = replace(result.workload, software=chosen)
    result = replace(result, workload=workload, profile=profile, software=software)
    assumed = ("hours_per_run", "runs_per_year", "price_per_hour_usd")
    return {
        "schema_version": 1,
        "id": str(uuid4()),
        "request": {name: value for name, value in request.items() if name not in assumed},
        "result": json.loads(json.dumps(result.to_dict())),
        "started_at": "2026-10-01T10:00:00+00:00",
        "finished_at": "2026-10-01T10:01:00+00:00",
        "origin": {"host": "laptop", "ran": "memorymark analyze"},
        "environment": {"torch": "2.13.0", "python": "3.11.7"},
    }


def test_what_changed_between_two_releases_is_shown_and_can_be_taken_along(
    site: Site, member: Account, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(site, member)
    send = doing.program_of(page)
    numbers = []
    for transformers, activations in (("4.46.3", 2**30), ("4.51.3", 2**30 + 2**29)):
        answer = send("/api/v1/analyses/import/", document(transformers, activations))
        assert answer.ok, answer.text()
        numbers.append(answer.json()["id"])
    page.goto("/history/")
    for number in numbers:
        page.get_by_label(f"Select #{number}").check()
    page.get_by_role("button", name="Compare").click()
    changed = page.locator("#compare-releases")
    expect(changed.get_by_role("heading", name="What changed?")).to_be_visible()
    table = changed.get_by_role("table").first
    for head in ("transformers 4.46.3", "transformers 4.51.3", "GiB added"):
        expect(table.get_by_role("columnheader", name=head)).to_be_visible()
    row = table.get_by_role("row").filter(has_text=MODULE)
    expect(row).to_contain_text("+0.50")
    look(page, "compare-releases")

    with page.expect_download() as download:
        changed.get_by_role("link", name="CSV").click()
    file = tmp_path / "changed.csv"
    download.value.save_as(file)
    assert MODULE in file.read_text()
    address = changed.get_by_role("link", name="Markdown").get_attribute("href")
    markdown = page.request.get(str(address))
    assert "### Memory at the peak, by operation" in markdown.text()
