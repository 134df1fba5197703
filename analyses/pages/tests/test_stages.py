"""Stages of a running analysis, from the engine to its page."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses.jobs.engine_output import EngineOutput, QueryOutput, parse
from analyses.jobs.engine_process import Line
from analyses.models import Analysis, LogLine, Status
from analyses.pages.analysis.stages import stages_of
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.events import Log, Stage, about, seconds_left, to_json_line

pytestmark = pytest.mark.database


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (Stage("build"), "build"),
        (Stage("trace", 0.5), "trace, 50% done"),
        (Stage("search", 1 / 14), "search, 7% done"),
    ],
)
def test_a_stage_becomes_a_line_of_the_log(stage: Stage, said: str) -> None:
    assert parse(to_json_line(stage)) == stage
    output = EngineOutput()
    output.take(Line("stdout", to_json_line(stage)))
    assert [(line.message, line.level) for line in output.lines] == [(said, LogLine.STAGE)]


@pytest.mark.parametrize("stage", [Stage("build"), Stage("trace", 0.5), Stage("search", 1.0)])
def test_a_stage_can_be_read_from_the_log(stage: Stage) -> None:
    assert Stage.read(str(stage)) == stage


def test_a_query_says_what_it_tries_and_how_much_it_has_tried() -> None:
    output = QueryOutput()
    for event in (Stage("advice", 0.4, 2, 5), Log("Trying bf16")):
        output.take(Line("stdout", to_json_line(event)))
    assert output.progress == "Advice, 2 of 5 combinations of moves tried. Trying bf16"


@pytest.mark.parametrize(
    ("seen", "usual", "left"),
    [
        ([], {}, None),
        ([(Stage("build"), 100.0)], {}, None),
        ([(Stage("trace", 0.0), 100.0)], {}, None),  # nothing is known of it yet
        ([(Stage("trace", 0.0), 100.0), (Stage("trace", 0.5), 108.0)], {}, 6.0),
        ([(Stage("build"), 100.0), (Stage("search"), 104.0)], {"search": 20.0}, 14.0),
        ([(Stage("search"), 104.0)], {"search": 5.0}, None),  # it takes longer than it did
    ],
)
def test_the_time_left_has_a_base(
    seen: list[tuple[Stage, float]], usual: dict[str, float], left: float | None
) -> None:
    assert seconds_left(seen, 110.0, usual) == left


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "about 5 s left"), (16, "about 20 s left"), (200, "about 3 min left")],
)
def test_the_time_left_is_told_as_roughly_as_it_is_known(seconds: float, said: str) -> None:
    assert about(seconds) == said


def log_of(analysis: Analysis, begun: datetime, stages: dict[str, float]) -> None:
    """Store lines of the log, each so many seconds after the begin."""
    for message, seconds in stages.items():
        line = LogLine.objects.create(analysis=analysis, level=LogLine.STAGE, message=message)
        LogLine.objects.filter(pk=line.pk).update(created_at=begun + timedelta(seconds=seconds))


@pytest.mark.django_db
def test_the_page_shows_the_stages_while_it_runs(client: Client, member: User) -> None:
    client.force_login(member)
    running = make_analysis(member, Status.RUNNING)
    done = make_analysis(member, Status.SUCCEEDED, make_result())
    now = timezone.now()
    for analysis in (running, done):
        log_of(analysis, now, {"build": -60.5, "trace, 0% done": -60, "trace, 50% done": -10})
    shown = {
        analysis: client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
        for analysis in (running, done)
    }
    assert 'class="stages"' not in shown[done]
    for item in (
        '<li class="stage-done">Build</li>',
        'aria-current="step">Trace <small>50% done</small> <small data-left="',
        "about 40 s left",
        '<li class="stage-next">Search</li>',
        '<li class="stage-next">Advice</li>',
    ):
        assert item in shown[running]


@pytest.mark.django_db
def test_a_stage_takes_as_long_as_with_the_last_analyses_of_the_model(member: User) -> None:
    now = timezone.now()
    for seconds in (20, 30, 90):
        earlier = make_analysis(member, Status.SUCCEEDED, make_result())
        log_of(earlier, now, {"build": -100, "search": -99})
        Analysis.objects.filter(pk=earlier.pk).update(
            finished_at=now + timedelta(seconds=seconds - 99)
        )
    running = make_analysis(member, Status.RUNNING)
    log_of(running, timezone.now(), {"search": -10})
    (stage,) = [one for one in stages_of(running, has_ladder=False) if one.state == "now"]
    assert stage.left == pytest.approx(20, abs=1)
    other = make_analysis(member, Status.RUNNING, request=make_request(model="gpt2"))
    log_of(other, timezone.now(), {"search": -10})
    assert stages_of(other, has_ladder=False)[-1].left is None


@pytest.mark.django_db
def test_before_the_first_stage_none_is_shown(member: User) -> None:
    assert stages_of(make_analysis(member, Status.QUEUED), has_ladder=True) == []
