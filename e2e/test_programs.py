"""Requests of programs with a token: your own script and its runs, and the first service's.

Their answers are looked at in the browser, like everything else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from playwright.sync_api import FilePayload, Page, expect

from analyses.importing.tests.pushed_scripts import HASH, make_document
from analyses.training_runs.tests.recorded_runs import recorded_run
from e2e import doing
from e2e.conftest import Open
from e2e.doing import Send
from e2e.looking import look
from e2e.running import Account, Site
from engine.interface.result import KeptBatch

pytestmark = pytest.mark.e2e

FIRST_SERVICES = (
    "optimal_batch_size", "optimal_memory_gb", "current_batch_size", "waste_gb", "waste_percent",
    "speedup", "cost_savings_annual", "results",
)  # fmt: skip


@pytest.fixture
def page(site: Site, member: Account, open_page: Open) -> Page:
    return open_page(site, member)


@pytest.fixture
def send(page: Page) -> Send:
    """Posts a body as a program of the member does."""
    return doing.program_of(page)


def test_a_script_that_is_pushed_is_shown_listed_compared_and_verified(
    page: Page, send: Send
) -> None:
    # About a GPU of no shared sample: after its run is known, the GPU's answers are computed anew.
    document = make_document(gpu="h100")
    document["result"]["kept_batch"] = asdict(KeptBatch(64, 2, 900.0, 1.3, 1.2, 1.4))
    pk = send("/api/v1/analyses/import/", document).json()["id"]
    page.goto(f"/{pk}/")
    kept, raised = page.locator(".offer").all()
    expect(kept).to_contain_text("batch 64 in 2 micro-batches")
    expect(kept).to_contain_text("Learning rate: as it is.")
    expect(raised).to_contain_text("square root rule for Adam-like optimizers")
    expect(page.locator("#ladder")).to_contain_text("never runs scripts of its members")
    expect(page.locator("#ladder code")).to_contain_text("memorymark plan train.py")
    look(page, "script")

    run = replace(
        recorded_run(precision="", device_name="NVIDIA H100 80GB HBM3"),
        program="train.py",
        program_hash=HASH,
    )
    page.get_by_role("button", name="Adopt", exact=True).click()
    expect(page.get_by_role("button", name="Undo adoption").first).to_be_visible()
    page.get_by_text("Report what the run really used", exact=True).click()
    page.get_by_label("Without a network there").set_input_files(
        FilePayload(
            name="training_runs.jsonl",
            mimeType="application/json",
            buffer=json.dumps(run.to_dict()).encode(),
        )
    )
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.locator("#decision .verified")).to_contain_text("Verified: measured")
    expect(page.locator("#training-runs")).to_contain_text("as recommended")

    edited = send("/api/v1/analyses/import/", make_document(program_hash="77c0" * 16)).json()["id"]
    page.goto("/history/?q=train.py")
    for number in (pk, edited):
        page.get_by_label(f"Select #{number}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("table.compare")).to_contain_text(HASH[:16])
    page.goto("/savings/?model=train.py")
    expect(page.locator("table.savings").first).to_contain_text("train.py")


def test_the_first_services_programs_work_as_they_are(page: Page, send: Send) -> None:
    assert page.request.get("/health").json()["status"] == "ok"
    answer = send("/analyze", {"model_name": "distilbert"})
    assert answer.status == 200
    body = answer.json()
    assert set(FIRST_SERVICES) <= body.keys()
    page.goto(body["url"])
    doing.wait_for_verdict(page)
    expect(page.locator(".lead").first).to_contain_text(f"batch {body['current_batch_size']}")
    for given, message in (("{", "not JSON"), ({"model_name": "no-such-model"}, "no-such-model")):
        refused = send("/analyze", given)
        assert refused.status == 400
        assert message in refused.json()["error"]
    page.goto("/models")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Models")
    page.context.clear_cookies()  # a program has none
    stranger = send("/analyze", {"model_name": "distilbert"}, token="none")
    assert stranger.status == 401
    assert stranger.json().keys() == refused.json().keys()
