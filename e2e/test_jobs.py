"""Jobs that report themselves in a real browser: import, their page, one click to an analysis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from e2e import doing
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Account, Site
from engine.core.sizes import GIB

pytestmark = pytest.mark.e2e

SLURM_JOB = "4711"


def job(user: str, **changes: Any) -> dict[str, Any]:
    """A job of two hours on one A10, as ``memorymark import slurm`` sends it."""
    ended = datetime.now(UTC) - timedelta(minutes=5)
    return {
        "reporter": "slurm",
        "id": f"lab/{user}",
        "user": user,
        "device_name": "NVIDIA A10",
        "gpus": 1,
        "started_at": (ended - timedelta(hours=2)).isoformat(),
        "ended_at": ended.isoformat(),
        "slurm_job_id": f"{SLURM_JOB}{user.removeprefix('m')}",
        "name": f"job of {user}",
    } | changes


def run_of(user: str) -> dict[str, Any]:
    """The run of W&B inside that job, which knows memory and settings."""
    return job(
        user,
        reporter="wandb",
        id=f"lab/run-{user}",
        used_bytes=4 * GIB,
        request={"model": "distilbert", "current_batch_size": 24, "sequence_length": 64},
    )


def send(page: Page, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Import jobs as ``memorymark import`` of the signed-in member does."""
    answer = doing.program_of(page)("/api/v1/training-jobs/", {"jobs": jobs})
    assert answer.ok, answer.text()
    found: dict[str, Any] = answer.json()
    return found


def test_imported_jobs_are_counted_once_and_one_click_fills_in_their_analysis(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    sent = send(page, [job(member.name), run_of(member.name)])
    assert (sent["new"], sent["refused"]) == (2, [])
    page.goto("/gpu-hours/?by=member")
    totals = page.get_by_role("region", name="By member")
    mine = totals.get_by_role("row").filter(has_text=member.name)
    expect(mine.locator("td").first).to_have_text("1")
    expect(mine).to_contain_text("2.00")
    expect(page.get_by_text("that W&B or MLflow also report")).to_be_visible()
    look(page, "gpu-hours-with-jobs")

    listed = page.get_by_role("row").filter(has_text=f"Slurm lab/{member.name}")
    expect(listed).to_contain_text("also reported by W&B")
    expect(listed).to_contain_text("4.0 of 22.1")
    listed.get_by_role("link", name="Analyze").click()
    expect(page.get_by_role("combobox", name="Search models")).to_have_value("DistilBERT base")
    expect(page.locator("#id_gpu")).to_have_value("a10")
    expect(page.get_by_label("Current batch size")).to_have_value("24")
    expect(page.locator('[name="sequence_length"]')).to_have_value("64")
    page.get_by_role("button", name="Analyze", exact=True).click()
    assert doing.wait_for_verdict(page)


def test_an_admin_deletes_imported_jobs(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    send(page, [job(member.name)])
    expect(page.get_by_role("link", name="Imported jobs")).to_have_count(0)
    name = f"a{member.name}"
    admin = open_page(site, site.add_member(name, admin=True))
    admin.goto("/gpu-hours/")
    admin.get_by_role("link", name="Imported jobs").click()
    admin.get_by_label("User").fill(member.name)
    admin.get_by_role("button", name="Show").click()
    look(admin, "imported-jobs")
    admin.get_by_label(f"job of {member.name}").check()
    admin.get_by_role("button", name="Delete ticked").click()
    expect(admin.get_by_text("Deleted 1 imported job.")).to_be_visible()
    expect(admin.get_by_text("No matching jobs")).to_be_visible()
