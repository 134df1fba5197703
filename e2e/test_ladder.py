"""The ladder in a real browser, when a measurement of the lab arrives after it was found."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from analyses.training_runs.tests.recorded_runs import recorded_run, report_of
from e2e import doing
from e2e.conftest import Open
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

OF_NO_SAMPLE = "NVIDIA L40S"
"""A GPU that no shared sample is about: after a measurement, its answers are computed anew."""


def rungs(page: Page) -> list[str]:
    names = page.locator("#ladder tbody tr th").all_inner_texts()
    return [" ".join(name.split()) for name in names]


def test_the_ladder_stays_when_a_measurement_arrives(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    number = doing.analyze(page, model="distilbert", gpu="l40s", current_batch_size="16")
    doing.wait_for_verdict(page)
    doing.wait_for_ladder(page)
    before = rungs(page)
    assert len(before) > 1
    address = page.url

    record = replace(
        recorded_run(batch_size=16, device_name=OF_NO_SAMPLE),
        analysis_id=number,
        step_seconds=0.05,
        step_seconds_low=0.049,
        step_seconds_high=0.052,
        samples_per_second=320.0,
    )
    send = doing.program_of(page)
    elsewhere = replace(record, device_name="NVIDIA H100 80GB HBM3")
    assert send("/api/v1/trainings/", report_of(elsewhere)).ok
    page.goto(address)
    missed = "Not verified by the last run: it trained on NVIDIA H100 80GB HBM3, not"
    expect(page.locator("#decision")).to_contain_text(f"{missed} {OF_NO_SAMPLE}.")
    answer = send("/api/v1/trainings/", report_of(record))
    assert answer.ok, answer.text()
    page.goto(address)
    assert rungs(page) == before
    expect(page.get_by_role("button", name="Find what helps")).to_have_count(0)
    expect(page.locator("#training-runs")).to_contain_text(re.compile("320"))
