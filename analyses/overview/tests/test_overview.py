"""The page one lands on: what a lab sees of itself, and who sees what."""

from __future__ import annotations

import csv
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import services
from analyses.models import Analysis, Mention, Node, Status
from analyses.overview.changes import mention
from analyses.pages import overview
from analyses.tests.factories import (
    make_analysis,
    make_request,
    make_result,
    make_training,
    make_user,
    make_viewer,
)

pytestmark = pytest.mark.database

HTMX = {"HX-Request": "true"}


def html_of(page: Client) -> str:
    response = page.get("/")
    assert response.status_code == 200
    return response.content.decode()


def next_address(html: str) -> str:
    return html.split("<main")[-1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def test_the_overview_requires_a_login(client: Client, db: None) -> None:
    assert client.get("/").status_code == 302
    assert client.get(reverse("analyses:overview-csv", args=["weeks"])).status_code == 302


def test_a_new_lab_sees_the_first_steps(page: Client) -> None:
    html = html_of(page)
    assert "Start the first analysis" in html
    assert html.count('class="button') == 1
    assert "ask an admin to invite the members" in html
    assert "data-chart" not in html


def test_a_viewer_of_a_new_lab_cannot_start_an_analysis(client: Client, db: None) -> None:
    client.force_login(make_viewer("vera"))
    html = html_of(client)
    assert "Which batch size should your lab train with?" in html
    assert "Start the first analysis" not in html


def test_an_admin_of_a_new_lab_sees_the_link_to_the_members(client: Client, db: None) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    assert reverse("accounts:members") in html_of(client)


def test_the_page_of_a_new_lab_loads_again_once_something_was_analyzed(
    page: Client, member: User
) -> None:
    address = next_address(html_of(page))
    assert page.get(address, headers=HTMX).status_code == 204
    make_analysis(member)
    assert page.get(address, headers=HTMX)["HX-Refresh"] == "true"


def test_what_was_saved_comes_first_and_says_where_it_comes_from(
    page: Client, member: User
) -> None:
    realised = make_analysis(member, Status.SUCCEEDED, usd_per_year=1234.0)
    services.adopt(realised, member)
    make_training(realised, hours=10.0)
    html = html_of(page)
    saved = html.split("Needs a decision")[0]
    for text in ("Saved so far, this year", "by 1 recorded training run", "badge-assumed"):
        assert text in saved
    assert 'data-chart="saved-figure"' in saved
    assert saved.count('class="button button-large') == 1
    assert reverse("analyses:savings-report") in saved


def test_a_lab_without_any_savings_is_told_how_they_come_about(page: Client, member: User) -> None:
    make_analysis(member, Status.FAILED)
    html = html_of(page)
    assert "mark its recommendation as adopted" in html
    assert 'data-chart="saved-figure"' not in html


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
    assert html.count('<li id="running-') == overview.SHOWN_WAITING
    assert "3 more queued." in html


def test_the_overview_shows_the_nodes_online_and_their_problems(page: Client, member: User) -> None:
    make_analysis(member)
    now = timezone.now()
    Node.objects.create(name="here", gpu_name="NVIDIA L4", heartbeat_at=now, problem="no driver")
    gone = now - timedelta(days=1)
    Node.objects.create(name="gone", gpu_name="NVIDIA T4", heartbeat_at=gone)
    html = html_of(page)
    assert "1 of 2 workers online" in html
    assert "NVIDIA L4" in html
    assert "here has a problem." in html
    assert "NVIDIA T4" not in html


def test_nothing_is_sent_until_something_changes(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    address = next_address(html_of(page))
    assert page.get(address, headers=HTMX).status_code == 204
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.FAILED)
    changed = page.get(address, headers=HTMX).content.decode()
    assert changed.lstrip().startswith('<div id="now"')
    assert "data-chart" not in changed
    assert page.get(next_address(changed), headers=HTMX).status_code == 204


def test_a_cancelled_analysis_does_not_stay_on_cancelling(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.CANCELLING)
    address = next_address(html_of(page))
    Analysis.objects.filter(pk=analysis.pk).update(status=Status.CANCELLED)
    assert "Cancelled" in page.get(address, headers=HTMX).content.decode()


def test_a_change_can_be_mentioned_from_here_once(page: Client, member: User) -> None:
    theirs = make_analysis(make_user("alan"), Status.SUCCEEDED, usd_per_year=100.0)
    assert "Mention #" in html_of(page)
    address = reverse("analyses:mention", args=[theirs.pk])
    response = page.post(address, {"from": "overview"})
    assert response["Location"] == "/#ask-title"
    assert Mention.objects.get().by == member
    html = html_of(page)
    assert "mentioned on" in html
    assert f'action="{address}"' not in html


def test_viewers_see_what_could_change_but_mention_nothing(client: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED, usd_per_year=100.0)
    client.force_login(make_viewer("vera"))
    html = html_of(client)
    assert "Whom to ask: 1 change worth $100 a year" in html
    assert "Mention #" not in html
    assert "New analysis" not in html


def test_ones_own_recommendations_are_not_mentioned_to_oneself(page: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED, usd_per_year=100.0)
    html = html_of(page)
    assert "Your recommendations, not adopted yet" in html
    assert "Whom to ask" not in html


@pytest.mark.parametrize(("batch", "said"), [(64, "batch 16 to 64"), (16, "batch 16")])
def test_a_recommendation_that_keeps_the_batch_does_not_name_it_twice(
    page: Client, member: User, batch: int, said: str
) -> None:
    make_analysis(member, Status.SUCCEEDED, usd_per_year=100.0, recommended_batch_size=batch)
    assert f'<p class="quiet">{said}, ' in html_of(page)


def test_charts_say_in_words_what_they_show(page: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    html = html_of(page)
    assert 'aria-label="Analyses in the last 13 weeks: 1 succeeded."' in html
    assert "GPU memory in use, the median of each GPU&#x27;s workloads: NVIDIA A10" in html
    assert "not measured by your lab yet" in html
    assert 'data-chart="accuracy-figure"' not in html


@pytest.mark.parametrize(
    ("chart", "head"),
    [
        ("weeks", "week_from,succeeded,failed,cancelled,unfinished"),
        ("gpus", "gpu,memory_bytes,workloads,median_share_in_use,median_share_if_recommended"),
        ("predictions", "predicted,unit,analysis,model,gpu,batch_size,prediction,measurement"),
    ],
)
def test_the_numbers_of_each_chart_can_be_downloaded(
    page: Client, member: User, chart: str, head: str
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    make_training(analysis)
    response = page.get(reverse("analyses:overview-csv", args=[chart]))
    lines = b"".join(response).decode().splitlines()
    assert lines[0].startswith(head)
    rows = list(csv.DictReader(lines))
    assert len(rows) == {"weeks": 13, "gpus": 1, "predictions": 1}[chart]


def test_there_is_no_csv_of_another_chart(page: Client) -> None:
    assert page.get(reverse("analyses:overview-csv", args=["fish"])).status_code == 404


def test_a_mentioned_change_of_ones_own_analysis_is_refused(member: User) -> None:
    with pytest.raises(LookupError):
        mention(make_analysis(member, Status.SUCCEEDED), member)


def test_only_an_answer_that_was_measured_is_marked(page: Client, member: User) -> None:
    for source in ("predicted", "measured"):
        make_analysis(member, Status.SUCCEEDED, make_result(), source=source)
    recent = html_of(page).split('id="recent-title"')[1].split("</section>")[0]
    assert "Predicted unless marked." in recent
    assert (recent.count("badge-predicted"), recent.count("badge-measured")) == (0, 1)
