"""A comparison while its analyses run."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis, Status
from analyses.pages import long_poll
from analyses.pages.tests.compared import html_of, ids, make
from analyses.tests.factories import make_analysis


@pytest.fixture
def running(member: User, monkeypatch: pytest.MonkeyPatch) -> list[Analysis]:
    """One that has an answer, one that failed, one that runs and one that waits."""
    monkeypatch.setattr(long_poll, "HELD_SECONDS", 0.1)
    unanswered = (Status.FAILED, Status.RUNNING, Status.QUEUED)
    return [make(member), *(make_analysis(member, status) for status in unanswered)]


def update_of(page: Client, analyses: list[Analysis], seen: str) -> tuple[int, str]:
    """The status and the text of what htmx gets."""
    query = f"?ids={ids(analyses)}&seen={seen}"
    response = page.get(reverse("analyses:compare") + query, headers={"HX-Request": "true"})
    return response.status_code, response.content.decode()


def test_a_comparison_says_how_many_are_done_and_asks_for_news(
    page: Client, running: list[Analysis]
) -> None:
    html = html_of(page, f"?ids={ids(running)}")
    assert "2 of 4 done, 1 without an answer" in html
    assert "&amp;seen=succeeded-failed-running-queued" in html
    assert '<noscript><meta http-equiv="refresh"' in html


def test_without_news_nothing_is_sent(page: Client, running: list[Analysis]) -> None:
    assert update_of(page, running, "succeeded-failed-running-queued") == (204, "")


def test_news_are_sent_without_the_rest_of_the_page(page: Client, running: list[Analysis]) -> None:
    status, html = update_of(page, running, "succeeded-running-queued-queued")
    assert status == 200
    assert "2 of 4 done" in html
    assert 'id="compare-table" hx-swap-oob="true"' in html
    assert "<main" not in html
    assert "compare-charts" not in html  # they would be the same


def test_the_charts_are_sent_with_a_new_answer(page: Client, running: list[Analysis]) -> None:
    _, html = update_of(page, running, "running-failed-running-queued")
    assert 'id="compare-charts" hx-swap-oob="true"' in html
    assert "memory-figure" in html


def test_the_last_news_end_the_asking(page: Client, running: list[Analysis]) -> None:
    Analysis.objects.filter(pk__in=[one.pk for one in running]).update(status=Status.CANCELLED)
    _, html = update_of(page, running, "succeeded-failed-running-queued")
    assert "4 of 4 done" in html
    assert "hx-get" not in html
    assert "hx-get" not in html_of(page, f"?ids={ids(running)}").split("<main")[1]
