"""Submit, watch, adopt, compare, export and cancel, most of it on a phone.

The other files do the same on a desktop.
"""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Page, expect

from e2e import doing
from e2e.conftest import PHONE, Open
from e2e.looking import look
from e2e.running import Account, Site
from engine.core.numbers import usd

pytestmark = pytest.mark.e2e

WATCHED = {"model": "llama-3.2-3b", "gpu": "h100", "precision": "bf16-true"}
"""An analysis that takes long enough to watch, at a sequence length that was not traced before."""

SLOW = WATCHED | {"model": "llama-3-8b"}
"""One that takes long enough to be stopped; its advice would take minutes."""


def _csv(page: Page, address: str) -> list[dict[str, str]]:
    response = page.request.get(address)
    assert response.ok
    return list(csv.DictReader(io.StringIO(response.text())))


def _savings_of(page: Page, member: str) -> tuple[float, float]:
    """Realised and potential savings in USD per year, unrounded."""
    rows = _csv(page, f"/savings/totals.csv?by=member&member={member}")
    if not rows:
        return 0.0, 0.0
    return float(rows[0]["realised_usd_per_year"]), float(rows[0]["potential_usd_per_year"])


def _without_predictions(page: Page) -> None:
    """Keep the form from predicting, since the analysis would find its traces and be quick."""
    page.route("**/new/preview/", lambda route: route.fulfill(status=204))


def test_an_analysis_shows_its_stages_its_answer_and_what_it_tries_without_a_reload(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    _without_predictions(page)
    doing.analyze(page, **WATCHED, sequence_length="384")
    stages = page.get_by_role("list", name="Stages")
    expect(stages.get_by_text("Build")).to_be_visible()
    expect(stages.locator("[aria-current=step]")).to_contain_text(re.compile("Trace|Search"))
    expect(stages.get_by_text("Advice")).to_be_visible()
    look(page, "stages")
    page.evaluate("window.untouched = true")
    verdict = doing.wait_for_verdict(page)
    expect(page.locator("#said")).to_contain_text(verdict)  # to screen readers
    expect(page.locator("#state")).to_contain_text("Succeeded")
    expect(page.locator(".picture-bars")).to_be_visible()
    page.get_by_role("tab", name="Step").click()
    expect(page.locator("[data-chart] svg.main-svg").first).to_be_visible()
    ladder = page.locator("#ladder")
    tried = re.compile(r"Advice, \d+ of \d+ combinations of moves tried")
    # The plan begins once a worker is free, and on a busy machine others come first.
    expect(ladder).to_contain_text(tried, timeout=doing.ANSWER_MS)
    look(page, "stages-advice")
    doing.wait_for_ladder(page)
    expect(ladder).not_to_contain_text("combinations of moves tried")
    assert page.evaluate("window.untouched")


def test_adopting_a_recommendation_turns_its_savings_from_potential_to_realised(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member, **PHONE)
    pk = doing.analyze(page, **doing.SAMPLE)
    verdict = doing.wait_for_verdict(page)
    # The plan may be there already: other tests share the sample.
    assert re.search(r"[Bb]atch [\d,]+|^Switch to ", verdict)
    (row,) = [r for r in _csv(page, "/savings/analyses.csv") if r["analysis"] == str(pk)]
    saving = float(row["usd_per_year"])
    assert saving > 0
    assert _savings_of(page, member.name) == (0.0, saving)

    doing.wait_for_ladder(page)  # what keeps the global batch is decided instead, and adopted
    page.get_by_role("button", name="Adopt", exact=True).click()
    expect(page.get_by_role("button", name="Undo adoption").first).to_be_visible()
    realised, potential = _savings_of(page, member.name)
    assert realised > 0.0
    assert potential == 0.0

    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    assert _savings_of(page, member.name) == (realised, 0.0)  # a repeat counts only once

    page.goto(f"/savings/?member={member.name}")
    expect(page.locator(".figure-card").first).to_contain_text(usd(realised))
    page.goto(f"/{pk}/")
    page.locator("#decision").get_by_role("button", name="Undo adoption").click()
    expect(page.get_by_role("button", name="Adopt", exact=True)).to_be_visible()
    assert _savings_of(page, member.name) == (0.0, realised)


def test_an_analysis_can_be_cancelled(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member, **PHONE)
    _without_predictions(page)
    doing.analyze(page, **SLOW, sequence_length="768")
    page.get_by_role("button", name="Cancel").click()

    expect(page.locator("#state")).to_contain_text("Cancelled", timeout=doing.ANSWER_MS)
    expect(page.get_by_text(f"Cancelled by {member.name}")).to_be_visible()


def test_two_analyses_can_be_compared_from_the_history(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member, **PHONE)
    pks = []
    for sample in (doing.SAMPLE, doing.OTHER_SAMPLE):
        pks.append(doing.analyze(page, **sample))
        doing.wait_for_verdict(page)
    page.goto(f"/history/?member={member.name}")
    for pk in pks:
        page.get_by_label(f"Select #{pk}").check()
    expect(page.locator("[data-selected]")).to_have_text("2 selected:")
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_role("heading", name="2 side by side")).to_be_visible()
    expect(page).to_have_url(re.compile("ids="))
    for name in ("A10", "T4"):
        expect(page.locator("table").first).to_contain_text(name)
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    expect(page.locator("[data-chart] svg.main-svg").first).to_be_visible()

    page.get_by_role("link", name="Add analyses").click()
    page.wait_for_url("**/history/?model=distilbert")
    expect(page.locator("[data-selected]")).to_contain_text("2 selected")
    page.reload()
    page.get_by_role("button", name="Clear selection").click()
    page.reload()
    expect(page.locator("[data-selected]")).to_have_text("With selected:")


def test_the_exports_contain_exactly_what_the_page_shows(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    for sample in (doing.SAMPLE, doing.OTHER_SAMPLE):
        doing.analyze(page, **sample)
        doing.wait_for_verdict(page)
    page.goto(f"/history/?member={member.name}&sort=when")
    shown = page.locator(".row-id").all_inner_texts()
    texts = {}
    for kind in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Export as {kind}").click()
        texts[kind] = download.value.path().read_text()
    rows = list(csv.DictReader(io.StringIO(texts["CSV"])))

    assert [row["id"] for row in rows] == shown
    assert [str(row["id"]) for row in json.loads(texts["JSON"])] == shown
    assert len(shown) == 2


def test_invalid_input_is_shown_at_its_field_and_nothing_is_lost(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    doing.fill(page, "current_batch_size", "many")
    doing.fill(page, "precision", "bf16-mixed")
    page.get_by_role("button", name="Analyze").click()

    expect(page.get_by_text("Nothing has been submitted")).to_be_visible()
    batch = page.locator("[name=current_batch_size]")
    expect(batch).to_have_value("many")
    expect(batch).to_be_focused()
    expect(page.locator("[name=precision]")).to_have_value("bf16-mixed")


def test_the_preview_updates_while_typing(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    preview = page.locator("#preview")
    doing.fill(page, "current_batch_size", "8")
    expect(preview).to_contain_text("Yes, it fits, with", timeout=doing.ANSWER_MS)
    doing.fill(page, "current_batch_size", "4000")
    expect(preview).to_contain_text("does not fit", timeout=doing.ANSWER_MS)
    doing.fill(page, "current_batch_size", "many")
    expect(preview).not_to_contain_text("does not fit")
    assert page.locator(".field-error").count() == 0  # no errors before the form is submitted


def test_changed_assumptions_update_the_savings_in_place(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.get_by_role("tab", name="Speed").click()
    before = page.locator("#estimate").inner_text()
    page.get_by_label("Runs per year").fill("100000")

    expect(page.locator("#estimate")).to_contain_text("These numbers use your assumptions")
    assert page.locator("#estimate").inner_text() != before
    expect(page).to_have_url(re.compile("runs_per_year=100000"))


def test_everything_works_without_javascript(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member, javascript=False)
    pk = doing.analyze(page, **doing.OTHER_SAMPLE)
    doing.wait_for_verdict(page)  # the page reloads itself
    page.get_by_role("button", name="Adopt", exact=True).click()
    expect(page.locator("#decision").get_by_role("button", name="Undo adoption")).to_be_visible()
    page.goto(f"/history/?member={member.name}")
    page.get_by_label(f"Select #{pk}").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete 1 analysis?")).to_be_visible()
    page.get_by_role("button", name="Delete permanently").click()

    expect(page.get_by_text("No matching analyses")).to_be_visible()
