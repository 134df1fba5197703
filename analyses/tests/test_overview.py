from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import selectors, services
from analyses.models import Analysis, Node, Status
from analyses.pages import overview
from analyses.tests.factories import make_analysis, make_request, make_user

HTMX = {"HX-Request": "true"}


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def html_of(page: Client) -> str:
    response = page.get("/")
    assert response.status_code == 200
    return response.content.decode()


def next_address(html: str) -> str:
    return html.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def test_the_overview_requires_a_login(client: Client, db: None) -> None:
    assert client.get("/").status_code == 302


def test_a_new_lab_sees_the_first_steps(page: Client) -> None:
    html = html_of(page)
    assert "Start the first analysis" in html
    assert html.count('class="button') == 1
    assert "ask an admin to invite the members" in html
    assert "<table" not in html


def test_an_admin_of_a_new_lab_sees_the_link_to_the_members(client: Client, db: None) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    assert reverse("accounts:members") in html_of(client)


def test_the_overview_shows_the_totals_and_one_main_button(page: Client, member: User) -> None:
    realised = make_analysis(
        member, Status.SUCCEEDED, usd_per_year=1234.0, gpu_hours_per_year=777.0
    )
    services.adopt(realised, member)
    make_analysis(member, Status.SUCCEEDED, usd_per_year=55.0, request=make_request(gpu="t4"))
    html = html_of(page)
    assert html.count('class="button') == 1
    for text in ("$1,230", "777 GPU-hours", "$55.00", "badge-predicted", "badge-assumed"):
        assert text in html
    assert 'href="/savings/?kind=realised"' in html


def test_a_large_number_of_analyses_is_not_counted_exactly(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "COUNTED", 2)
    for shown in ("1", "2", "2+"):
        make_analysis(member, Status.SUCCEEDED)
        assert f'<a href="/history/">{shown}</a>' in html_of(page)


def test_the_overview_shows_running_and_recent_analyses(page: Client, member: User) -> None:
    running = make_analysis(make_user("alan"), Status.RUNNING, node="node-7")
    queued = make_analysis(make_user("ada"), request=make_request(model="gpt2"))
    ended = make_analysis(member, Status.FAILED, request=make_request(model="llama-3-8b"))
    now, lately = html_of(page).split("Recent analyses")
    for text in (f'id="running-{running.pk}"', "alan", "node-7", "Running", "data-elapsed"):
        assert text in now
    for text in (f'id="running-{queued.pk}"', "ada", "GPT-2", "Queued"):
        assert text in now
    assert f'id="recent-{ended.pk}"' in lately
    assert "Failed" in lately
    assert f"running-{ended.pk}" not in now


def test_a_long_queue_is_truncated_and_counted(page: Client, member: User) -> None:
    for _ in range(overview.SHOWN_WAITING + 3):
        make_analysis(member)
    html = html_of(page)
    assert (
        html.count('id="running-')
        - html.count('id="running-title')
        - html.count('id="running-scroll')
        == overview.SHOWN_WAITING
    )
    assert "3 more queued." in html
    assert "8 running or queued" in html


def test_the_overview_shows_the_nodes_online(page: Client, member: User) -> None:
    make_analysis(member)
    Node.objects.create(name="here", gpu_name="NVIDIA L4", heartbeat_at=timezone.now())
    gone = timezone.now() - timedelta(days=1)
    Node.objects.create(name="gone", gpu_name="NVIDIA T4", heartbeat_at=gone)
    html = html_of(page)
    assert "NVIDIA L4 · 1 of 2 workers online" in html
    assert "NVIDIA T4" not in html


def test_nothing_is_sent_until_something_changes(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    address = next_address(html_of(page))
    assert page.get(address, headers=HTMX).status_code == 204
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.FAILED)
    changed = page.get(address, headers=HTMX).content.decode()
    assert changed.lstrip().startswith('<div id="lab"')
    assert page.get(next_address(changed), headers=HTMX).status_code == 204


def test_a_cancelled_analysis_does_not_stay_on_cancelling(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.CANCELLING)
    address = next_address(html_of(page))
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.CANCELLED)
    assert "Cancelled" in page.get(address, headers=HTMX).content.decode()
