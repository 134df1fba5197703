"""The terminal of a running analysis is sent each line once, and only ever added to."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.models import Analysis, Status
from analyses.progress import NOTHING, Progress
from analyses.tests.factories import add_log, make_analysis

HTMX = {"HX-Request": "true"}


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def _asked_next(html: str) -> str:
    return html.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def test_each_line_is_sent_once(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "the first", "the second")
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert html.count("the first") == 1
    add_log(analysis, "the third")
    fragment = page.get(_asked_next(html), headers=HTMX).content.decode()
    added = fragment.split('id="log-lines" hx-swap-oob="beforeend">')[1].split("</div>")[0]
    assert "the third" in added
    assert "the first" not in fragment
    add_log(analysis, "the fourth")
    fragment = page.get(_asked_next(fragment), headers=HTMX).content.decode()
    assert "the fourth" in fragment
    assert "the third" not in fragment


def test_the_log_ends_with_the_analysis(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "Waiting for the engine" in html
    assert "terminal-follow" in html
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.FAILED)
    fragment = page.get(_asked_next(html), headers=HTMX).content.decode()
    assert 'id="log-end" hx-swap-oob="innerHTML">The engine said nothing.' in fragment
    assert 'class="cursor"' not in fragment
    assert 'id="about" hx-swap-oob="innerHTML"' in fragment
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "terminal-follow" not in html


def test_the_whole_log_is_a_file_to_download(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "a line")
    response = page.get(reverse("analyses:log", args=[analysis.pk]))
    assert response["Content-Disposition"] == f'attachment; filename="analysis-{analysis.pk}.log"'
    assert "a line" in b"".join(response).decode()


@pytest.mark.parametrize(
    "seen", ["", "running", "running-1-2", "running-1-x-0", "-1--1-0", "9" * 99]
)
def test_an_address_that_nobody_wrote_gets_the_whole_fragment(
    page: Client, member: User, seen: str
) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "a line")
    address = reverse("analyses:live", args=[analysis.pk])
    response = page.get(address, {"seen": seen}, headers=HTMX)
    assert response.status_code == 200
    assert "a line" in response.content.decode()


@given(st.sampled_from(Status), st.integers(0, 10**17), st.integers(0, 10**17), st.booleans())
def test_what_was_shown_can_be_read_back(
    status: Status, trial: int, line: int, is_late: bool
) -> None:
    shown = Progress(status, trial, line, is_late)
    assert Progress.parse(str(shown)) == shown


@given(st.text())
def test_any_other_text_is_as_if_nothing_was_shown(text: str) -> None:
    assert Progress.parse(f"?{text}") == NOTHING
