"""The page of an analysis while it runs: its trials, its status and its log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.models import Analysis, Status
from analyses.pages.analysis import views as views
from analyses.pages.analysis.views import NOTHING, Progress
from analyses.pages.tests.reading import html_of
from analyses.tests.factories import add_log, add_trial, make_analysis, make_result, make_trial
from analyses.tests.text_answers import make_text_analysis
from engine.core.errors import DoesNotFit

HTMX = {"HX-Request": "true"}


def seen(html: str) -> str:
    """The address that the live part of a page polls next."""
    return html.split("<main")[-1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def test_a_queued_analysis_says_that_it_is_waiting(page: Client, member: User) -> None:
    html = html_of(page, "detail", make_analysis(member).pk)
    assert "Queued" in html
    assert 'hx-trigger="load, every 500ms"' in html
    assert '<noscript><meta http-equiv="refresh"' in html


def test_what_is_decided_is_said_once_by_a_region_that_stays(page: Client, member: User) -> None:
    """The parts of the decision have no role themselves: said.js puts their text there."""
    done = make_analysis(member, Status.SUCCEEDED, make_result())
    no_fit = make_analysis(member, Status.FAILED, failure_code=DoesNotFit.code)
    texts = make_text_analysis(member)
    for analysis, title in ((done, "decision"), (no_fit, "no-fit"), (texts, "decision")):
        html = html_of(page, "detail", analysis.pk)
        region, changing = html.split('<p id="said" class="visually-hidden" role="status"></p>')
        assert f'<h2 id="{title}-title" data-say>' in changing.split("</section>")[0]
        assert 'role="status"' not in changing.split("</section>")[0]
        assert "said.js" in region


def test_a_running_analysis_shows_its_trials_and_its_log(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_trial(analysis, make_trial(16))
    add_trial(analysis, make_trial(300))
    add_log(analysis, "tracing one training step at batch 2")
    add_log(analysis, "slow node", level="warning")
    html = html_of(page, "detail", analysis.pk)
    assert "tracing one training step at batch 2" in html
    assert "log-warning" in html
    assert "does not fit" in html
    assert "out of memory" in html
    assert "badge-predicted" in html
    assert "2 trials" in html


def test_a_batch_that_fits_only_with_retries_is_marked(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_trial(analysis, replace(make_trial(16), alloc_retries=3))
    assert "to empty its cache 3 times" in html_of(page, "detail", analysis.pk)


def test_nothing_is_sent_while_nothing_changes(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    address = seen(html_of(page, "detail", analysis.pk))
    assert page.get(address, headers=HTMX).status_code == 204
    add_log(analysis, "a new line")
    after_line = page.get(address, headers=HTMX)
    assert "a new line" in after_line.content.decode()
    address = seen(after_line.content.decode())
    assert page.get(address, headers=HTMX).status_code == 204
    add_trial(analysis, make_trial(16))
    assert page.get(address, headers=HTMX).status_code == 200


def test_the_status_is_sent_only_when_it_changes(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    address = seen(html_of(page, "detail", analysis.pk))
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.RUNNING)
    changed = page.get(address, headers=HTMX).content.decode()
    assert 'id="state"' in changed
    add_log(analysis, "a new line")
    assert 'id="state"' not in page.get(seen(changed), headers=HTMX).content.decode()


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED])
def test_the_final_result_arrives_complete_and_ends_the_polling(
    page: Client, member: User, status: Status
) -> None:
    running = make_analysis(member, Status.RUNNING)
    address = seen(html_of(page, "detail", running.pk))
    result = make_result().to_dict() if status == Status.SUCCEEDED else None
    Analysis.objects.filter(pk=running.pk).update(
        status=status, result=result, finished_at=running.started_at, failure_reason="no memory"
    )
    html = page.get(address, headers=HTMX).content.decode()
    assert "every 500ms" not in html
    assert "<html" not in html
    assert f"status-{status}" in html
    assert ("decision-title" if result else "no memory") in html


def test_a_long_log_shows_its_end_and_links_to_all_of_it(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, *(f"line {number:04d}" for number in range(views.SHOWN_LOG_LINES + 5)))
    html = html_of(page, "detail", analysis.pk)
    assert "line 0204" in html
    assert "line 0004" not in html
    assert reverse("analyses:log", args=[analysis.pk]) in html
    response = page.get(reverse("analyses:log", args=[analysis.pk]))
    assert response["Content-Type"].startswith("text/plain")
    text = b"".join(response).decode()
    assert text.count("\n") == views.SHOWN_LOG_LINES + 5
    assert "line 0000" in text


def _next_address(html: str) -> str:
    return html.split("<main")[-1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def test_each_line_is_sent_once(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "the first", "the second")
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert html.count("the first") == 1
    add_log(analysis, "the third")
    fragment = page.get(_next_address(html), headers=HTMX).content.decode()
    added = fragment.split('id="log-lines" hx-swap-oob="beforeend">')[1].split("</div>")[0]
    assert "the third" in added
    assert "the first" not in fragment
    add_log(analysis, "the fourth")
    fragment = page.get(_next_address(fragment), headers=HTMX).content.decode()
    assert "the fourth" in fragment
    assert "the third" not in fragment


def test_the_log_ends_with_the_analysis(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "Waiting for output" in html
    assert "terminal-follow" in html
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.FAILED)
    fragment = page.get(_next_address(html), headers=HTMX).content.decode()
    assert 'id="log-end" hx-swap-oob="innerHTML">No output.' in fragment
    assert 'class="cursor"' not in fragment
    assert 'id="about" hx-swap-oob="innerHTML"' in fragment
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "terminal-follow" not in html


def test_the_whole_log_can_be_downloaded(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "a line")
    response = page.get(reverse("analyses:log", args=[analysis.pk]))
    assert response["Content-Disposition"] == f'attachment; filename="analysis-{analysis.pk}.log"'
    assert "a line" in b"".join(response).decode()


@pytest.mark.parametrize(
    "seen", ["", "running", "running-1-2", "running-1-x-0", "-1--1-0", "9" * 99]
)
def test_an_invalid_polling_address_gets_the_whole_fragment(
    page: Client, member: User, seen: str
) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "a line")
    address = reverse("analyses:live", args=[analysis.pk])
    response = page.get(address, {"seen": seen}, headers=HTMX)
    assert response.status_code == 200
    assert "a line" in response.content.decode()


@given(st.sampled_from(Status), st.integers(0, 10**17), st.integers(0, 10**17), st.booleans())
def test_the_state_shown_can_be_read_back(
    status: Status, trial: int, line: int, is_late: bool
) -> None:
    shown = Progress(status, trial, line, is_late)
    assert Progress.parse(str(shown)) == shown


@given(st.text())
def test_any_other_text_means_nothing_was_shown(text: str) -> None:
    assert Progress.parse(f"?{text}") == NOTHING
