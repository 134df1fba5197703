"""What a running analysis is doing, from the engine to its page."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.jobs.engine_output import EngineOutput, parse
from analyses.jobs.engine_process import Line
from analyses.models import LogLine, Status
from analyses.tests.factories import make_analysis, make_result
from engine.events import Stage, to_json_line


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


@pytest.mark.django_db
def test_the_page_shows_the_last_stage_while_it_runs(client: Client, member: User) -> None:
    client.force_login(member)
    running = make_analysis(member, Status.RUNNING)
    done = make_analysis(member, Status.SUCCEEDED, make_result())
    for analysis in (running, done):
        for level, message in (("stage", "build"), ("stage", "trace, 50% done"), ("info", "Hm")):
            LogLine.objects.create(analysis=analysis, level=level, message=message)
    shown = {
        analysis: client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
        for analysis in (running, done)
    }
    assert '<p class="busy" role="status">Trace, 50% done</p>' in shown[running]
    assert 'class="busy" role="status">Trace' not in shown[done]
