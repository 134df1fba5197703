from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.models import (
    Analysis,
    LogLine,
    Notification,
    Query,
    QueryKind,
    Status,
    TrainingJob,
    Trial,
)
from analyses.notifications import inbox
from analyses.tests.factories import make_analysis, make_request, make_user
from demo import filling, plan
from demo.command import main
from demo.filling import EngineGone, ask_for_plans, fill
from demo.inbox import fill_inboxes
from demo.jobs import MEMBERS, add_jobs, jobs_until
from demo.plan import ANALYSES, DAYS, Planned, year_until
from engine.interface.request import AnalysisRequest

pytestmark = pytest.mark.database

LAST_DAY = date(2026, 3, 1)
Behave = Callable[[str], list[str]]


def planned(count: int = 3) -> list[Planned]:
    """A small plan whose last request repeats the first."""
    begin = datetime(2026, 1, 1, 9, tzinfo=UTC)
    models = [*("bert", "gpt2", "resnet")[: count - 1], "bert"]
    return [
        Planned(
            pk,
            f"member{pk}",
            begin + timedelta(days=pk),
            {"model": model, "gpu": "a10"},
            "" if pk == 1 else "thesis",
        )
        for pk, model in enumerate(models, 1)
    ]


def unheard(_line: str) -> None: ...


@pytest.fixture
def folder(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder and a small plan."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr("demo.command.year_until", lambda _day: planned())
    monkeypatch.setattr("demo.jobs.JOBS", 20)
    settings.DATA_DIR = tmp_path
    settings.DEMO_MARK = tmp_path / "this-is-a-demo"
    return tmp_path


# The plan


def test_the_year_has_all_analyses_in_order_and_none_in_the_future() -> None:
    year = year_until(LAST_DAY)
    assert [one.pk for one in year] == list(range(1, ANALYSES + 1))
    times = [one.queued_at for one in year]
    assert times == sorted(times)
    assert LAST_DAY - timedelta(days=DAYS) < times[0].date()
    assert times[-1].date() <= LAST_DAY
    assert len({one.member for one in year}) == 7
    months = {(when.year, when.month) for when in times}
    assert len(months) >= 12


def test_the_plan_is_the_same_each_time() -> None:
    assert year_until(LAST_DAY) == year_until(LAST_DAY)


def test_every_request_of_the_plan_is_valid() -> None:
    requests = [AnalysisRequest.parse(one.fields) for one in year_until(LAST_DAY)]
    assert len({request.gpu for request in requests}) >= 8
    assert len({request.workload.model for request in requests}) >= 10


def test_some_requests_are_repeated() -> None:
    questions = [tuple(sorted(one.fields.items())) for one in year_until(LAST_DAY)]
    assert sum(len(project.gpus) * len(project.batches) for project in plan.PROJECTS) == len(
        set(questions)
    )


def test_several_projects_have_members_analyses_and_some_analyses_have_none() -> None:
    members: dict[str, set[str]] = {}
    for one in year_until(LAST_DAY):
        members.setdefault(one.project, set()).add(one.member)
    assert len(members) == 5
    assert "" in members
    assert any(len(names) > 1 for project, names in members.items() if project)


# Filling


@pytest.mark.django_db
def test_results_are_stored_as_if_members_had_submitted_them(fake_engine: Behave) -> None:
    fake_engine("success")
    said: list[str] = []
    fill(planned(), said.append)
    assert said[-1].startswith("3 of 3: ")
    first, second, again = Analysis.objects.order_by("pk")
    assert [one.status for one in (first, second, again)] == [Status.SUCCEEDED] * 3
    assert first.queued_at == planned()[0].queued_at
    assert first.finished_at is not None
    assert first.started_at is not None
    assert first.queued_at < first.started_at <= first.finished_at
    assert first.recommended_batch_size == 128
    assert first.project is None
    assert str(second.project) == str(again.project) == "thesis"
    assert (again.answered_from_id, second.answered_from_id) == (first.pk, None)
    for analysis in (first, second, again):
        assert analysis.trials.count() == 2
        lines = list(analysis.log_lines.values_list("message", flat=True))
        assert lines[0] == filling.MARK
    assert set(Trial.objects.values_list("created_at", flat=True)) <= set(
        Analysis.objects.values_list("finished_at", flat=True)
    )
    assert not Notification.objects.exists()


@pytest.mark.django_db
def test_stored_analyses_are_not_run_again(fake_engine: Behave) -> None:
    fake_engine("success")
    fill(planned()[:1], unheard)
    before = Analysis.objects.get()
    lines = LogLine.objects.count()
    fill(planned(), unheard)
    assert Analysis.objects.count() == 3
    assert Analysis.objects.get(pk=before.pk).finished_at == before.finished_at
    assert LogLine.objects.filter(analysis=before).count() == lines
    fake_engine("crash")
    fill(planned(), unheard)  # starts no engine


@pytest.mark.django_db
def test_two_fills_at_once_do_not_interfere(fake_engine: Behave) -> None:
    fake_engine("success")
    fill(planned(), lambda _line: fill(planned(), unheard))
    assert [one.trials.count() for one in Analysis.objects.all()] == [2, 2, 2]


@pytest.mark.django_db
def test_an_analysis_that_does_not_fit_is_stored_as_failed(fake_engine: Behave) -> None:
    fake_engine("error")
    fill(planned(2), unheard)
    failed = Analysis.objects.get(pk=1)
    assert failed.status == Status.FAILED
    assert failed.failure_reason


@pytest.mark.django_db
def test_a_dead_engine_is_reported_and_leaves_no_partial_analysis(fake_engine: Behave) -> None:
    fake_engine("crash")
    with pytest.raises(EngineGone, match="ended without an answer"):
        fill(planned(), unheard)
    assert not Analysis.objects.exists()


@pytest.mark.django_db
def test_the_demos_members_cannot_sign_in(fake_engine: Behave) -> None:
    fake_engine("success")
    fill(planned(), unheard)
    assert not any(member.has_usable_password() for member in User.objects.all())


@pytest.mark.django_db
def test_plans_of_the_largest_recent_savings_are_queued_once(member: User) -> None:
    for gpu, usd in (("a10", 50.0), ("t4", 200.0), ("l4", 100.0)):
        request = make_request(gpu=gpu)
        make_analysis(member, Status.SUCCEEDED, request=request, usd_per_year=usd)
    for _ in range(2):
        assert ask_for_plans() == 2
    plans = Query.objects.filter(kind=QueryKind.PLAN, for_pages=False)
    assert {plan.request["gpu"] for plan in plans} == {"t4", "l4"}
    assert plans.count() == 2


# The command


@pytest.mark.longer
@pytest.mark.django_db
def test_the_command_fills_and_prints_a_password_that_works(
    folder: Path, fake_engine: Behave, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine("success")
    passwords = []
    for _ in range(2):
        main()
        found = re.search(r"Sign in as demo with the password (\S+)", capsys.readouterr().out)
        assert found is not None
        passwords.append(found[1])
        assert authenticate(username="demo", password=passwords[-1])
    assert passwords[0] != passwords[1]
    assert Analysis.objects.count() == 3
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    marked = date.fromisoformat((folder / "this-is-a-demo").read_text().strip())
    assert yesterday - timedelta(days=1) <= marked <= yesterday


def refusal() -> str:
    with pytest.raises(SystemExit) as refused:
        main()
    assert not Analysis.objects.exists()
    return str(refused.value)


@pytest.mark.django_db
def test_a_real_labs_database_is_never_touched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://lab")
    assert "Unset it" in refusal()
    assert not list(folder.iterdir())


@pytest.mark.django_db
def test_a_folder_with_a_database_is_refused(folder: Path) -> None:
    (folder / "memorymark.sqlite3").touch()
    assert "Run make demo" in refusal()
    assert not (folder / "this-is-a-demo").exists()


@pytest.mark.django_db
def test_the_default_folder_is_refused_even_without_a_database(
    folder: Path, settings: Settings
) -> None:
    settings.BASE_DIR = folder.parent
    settings.DATA_DIR = folder.parent / "var"
    settings.DATA_DIR.mkdir()
    assert "Run make demo" in refusal()


@pytest.mark.django_db
def test_a_marker_without_a_date_is_reported(folder: Path) -> None:
    (folder / "this-is-a-demo").write_text("what?")
    assert "holds no date" in refusal()


@pytest.mark.parametrize("is_demo", [True, False])
def test_every_page_of_a_demo_says_so(
    client: Client, member: User, settings: Settings, is_demo: bool
) -> None:
    settings.IS_DEMO = is_demo
    pages: list[Any] = [client.get("/login/", follow=True)]
    client.force_login(member)
    pages += [client.get(path) for path in ("/", "/new/", "/gpus/", "/savings/", "/no/such/page/")]
    for page in pages:
        assert ('class="demo-note"' in page.content.decode()) == is_demo


# The jobs


def test_the_jobs_are_of_fifty_members_and_end_within_the_year() -> None:
    jobs = list(jobs_until(LAST_DAY, MEMBERS, 2000))
    assert len(set(MEMBERS)) == 50
    assert {job.user for job in jobs} >= set(MEMBERS)
    assert max(job.ended_at for job in jobs).date() <= LAST_DAY
    assert LAST_DAY - timedelta(days=DAYS) < min(job.ended_at for job in jobs).date()
    assert jobs == list(jobs_until(LAST_DAY, MEMBERS, 2000))


@pytest.mark.django_db
def test_the_jobs_are_added_once_and_most_belong_to_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("demo.jobs.JOBS", 50)
    admin = make_user("demo", is_staff=True)
    add_jobs(admin, LAST_DAY)
    add_jobs(admin, LAST_DAY)
    assert TrainingJob.objects.count() == 50
    assert TrainingJob.objects.filter(owner=None).count() < 10
    assert not TrainingJob.objects.filter(gpu="").exists()


@pytest.mark.django_db
def test_the_demos_account_has_an_inbox_of_all_kinds_once(member: User) -> None:
    last_day = datetime.now(UTC).date()
    account = make_user(plan.LOGIN)
    for name in ("amara", "chen"):
        make_user(name)
    for gpu in ("a10", "t4"):
        make_analysis(account, Status.SUCCEEDED, request=make_request(gpu=gpu))
    fill_inboxes(last_day)
    found = list(inbox.unread_of(account).values_list("kind", flat=True))
    assert set(found) == {"decision", "advice", "mention"}
    assert not Notification.objects.exists()
    fill_inboxes(last_day)
    assert inbox.unread_of(account).count() == len(found)
