from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from pytest_django import Settings

from analyses import services
from analyses.jobs import engine_output, engine_session, lease, supervisor, timeouts, worker
from analyses.jobs.engine_process import TERM_GRACE_SECONDS
from analyses.jobs.environments import OWN
from analyses.models import Analysis, Status
from analyses.tests.factories import add_trial, make_analysis, make_trial

pytestmark = pytest.mark.database

Behave = Callable[[str], list[str]]


def _run(member: User) -> Analysis:
    analysis = make_analysis(member)
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    return analysis


def _messages(analysis: Analysis) -> list[str]:
    return [line.message for line in analysis.log_lines.all()]


def _is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = os.popen(f"ps -o stat= -p {pid}").read()  # noqa: S605  # our own number
    return bool(stat.strip()) and not stat.startswith("Z")


def _gone_soon(pid: int) -> bool:
    until = time.monotonic() + 60
    while _is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_the_node_hears_of_every_task_a_worker_gets(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a busy node would take its workers to be hanging."""
    sung: list[str] = []
    monkeypatch.setattr(supervisor, "report_alive", lambda: sung.append("."))
    fake_engine("success")
    _run(member)
    worker.run(0)
    assert len(sung) == 2


def test_a_deleted_analysis_is_skipped(db: None, fake_engine: Behave) -> None:
    fake_engine("success")
    worker.run(0)
    assert not Analysis.objects.exists()


def test_a_success_is_stored_completely(member: User, fake_engine: Behave) -> None:
    fake_engine("success")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert analysis.result is not None
    assert analysis.result["verdict"]
    assert [(t.batch_size, t.fits) for t in analysis.trials.all()] == [(16, True), (300, False)]
    lines = [(line.level, line.message) for line in analysis.log_lines.all()]
    assert lines == [("info", "tracing"), ("warning", "close to the limit")]


@pytest.mark.parametrize(
    ("behaviour", "code", "reason"),
    [
        ("error", "does_not_fit", "batch 1 needs 30 GiB"),
        ("invalid", "invalid_input", "model: unknown"),
        ("crash", "crashed", "ended with status 3.*RuntimeError: boom"),
        ("silent", "crashed", "ended with status 0"),
        ("dead", "crashed", "ended with status 1.*cannot start"),
        ("no_line_end", "crashed", "ended with status 0"),
    ],
)
def test_every_other_outcome_is_a_failure_with_a_reason(
    member: User, fake_engine: Behave, behaviour: str, code: str, reason: str
) -> None:
    fake_engine(behaviour)
    analysis = _run(member)

    assert analysis.status == Status.FAILED
    assert analysis.failure_code == code
    assert re.search(reason, analysis.failure_reason, re.DOTALL)
    assert analysis.finished_at is not None


def test_a_killed_engine_is_tried_once_more(member: User, fake_engine: Behave) -> None:
    """By the kernel, say, for memory that another process took."""
    fake_engine("killed")
    analysis = _run(member)
    assert (analysis.status, analysis.failure_code) == (Status.QUEUED, "")
    assert re.search("signal 9.*out of memory.*tried once more", "\n".join(_messages(analysis)))

    fake_engine("success")
    worker.engines.close()  # one like the first was kept warm
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert (analysis.status, analysis.attempt) == (Status.SUCCEEDED, 2)


def test_an_engine_killed_twice_fails_with_the_reason(member: User, fake_engine: Behave) -> None:
    fake_engine("killed")
    analysis = _run(member)
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert (analysis.status, analysis.failure_code) == (Status.FAILED, "killed")
    assert "signal 9" in analysis.failure_reason


def test_output_that_is_not_an_event_goes_to_the_log(member: User, fake_engine: Behave) -> None:
    fake_engine("garbage")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    messages = _messages(analysis)
    assert "\ufffd\ufffd not text \ufffd" in messages
    assert '{"type": "dance"}' in messages
    assert "a NUL \ufffd and half a pair ?" in messages
    assert not analysis.trials.exists()


def test_a_flood_of_output_is_cut_off(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_output, "MAX_LOG_LINES", 1000)
    fake_engine("flood")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    messages = _messages(analysis)
    assert len(messages) == 1000
    assert messages[-1] == "The log ends here: 1,000 lines are kept."
    assert analysis.trials.count() == 1  # anything but log lines is still stored


@pytest.mark.slow
def test_a_gigabyte_of_output_neither_fills_memory_nor_loses_the_result(
    member: User, fake_engine: Behave
) -> None:
    fake_engine("gigabyte")
    before = psutil.Process().memory_info().rss
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert psutil.Process().memory_info().rss - before < 100 * 2**20
    assert analysis.log_lines.count() == engine_output.MAX_LOG_LINES
    assert analysis.trials.count() == 1


def test_an_endless_line_is_cut_off(member: User, fake_engine: Behave) -> None:
    fake_engine("longest_line")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert [len(message) for message in _messages(analysis)] == [engine_output.MAX_LOG_LINE_LENGTH]


@pytest.mark.longer
def test_the_deadline_ends_the_engine_and_its_children(
    member: User,
    fake_engine: Behave,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_engine("hang")
    settings.ENGINE_DEADLINE_SECONDS = 1200
    now, record = [0.0], lease.record

    def an_hour_passes(claim, trials, lines):  # type: ignore[no-untyped-def]  # as lease.record
        record(claim, trials, lines)
        now[0] = 3600.0  # once it has reported its child

    monkeypatch.setattr(engine_session, "monotonic", lambda: now[0] + time.monotonic())
    monkeypatch.setattr(lease, "record", an_hour_passes)
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    engine = worker.engines.take()
    monkeypatch.setattr(worker.engines, "take", lambda _environment: engine)
    analysis = _run(member)

    assert analysis.failure_code == "deadline"
    assert "1,200 seconds" in analysis.failure_reason
    grandchild = int(_messages(analysis)[0].removeprefix("grandchild "))
    assert _gone_soon(grandchild)
    assert _gone_soon(engine.pid)


def test_a_grandchild_holding_the_pipes_does_not_delay_the_analysis(
    member: User, fake_engine: Behave
) -> None:
    fake_engine("leave_grandchild")
    started = time.monotonic()
    analysis = _run(member)

    assert time.monotonic() - started < 300
    assert analysis.failure_code == "crashed"
    assert _gone_soon(int(_messages(analysis)[0].removeprefix("grandchild ")))


def test_the_engine_does_not_get_the_webs_secrets(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_KEY", "DATABASE_URL", "MEMORYMARK_HOSTS", "DJANGO_SETTINGS_MODULE"):
        monkeypatch.setenv(name, "postgres://u:p@h/d")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    fake_engine("environment")
    names = _messages(_run(member))[0].split()

    assert "CUDA_VISIBLE_DEVICES" in names
    assert not {"SECRET_KEY", "DATABASE_URL"} & set(names)
    assert not [name for name in names if name.startswith(("MEMORYMARK", "DJANGO"))]


def test_an_engine_that_cannot_be_started_is_a_failure(member: User, settings: Settings) -> None:
    settings.ENGINE_COMMAND = ["/nowhere/python", "-m", "engine"]
    analysis = _run(member)

    assert analysis.failure_code == "internal"
    assert "/nowhere/python" in analysis.failure_reason


def test_a_redelivered_task_does_nothing(member: User, fake_engine: Behave) -> None:
    fake_engine("success")
    analysis = _run(member)
    worker.run(analysis.job.pk)

    assert analysis.trials.count() == 2
    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED


@pytest.mark.longer
def test_the_task_returns_even_if_the_database_stays_unavailable(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object) -> None:
        raise DatabaseError("away")

    fake_engine("success")
    monkeypatch.setattr(lease, "connection", SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(timeouts, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "record", away)
    analysis = _run(member)

    assert analysis.status == Status.RUNNING  # recovery finds it by its stale heartbeat


@pytest.mark.longer
def test_everything_is_stored_once_the_database_is_back(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    record = lease.record

    def away_at_first(claim, trials, lines):  # type: ignore[no-untyped-def]  # as lease.record
        tries.append(1)
        if len(tries) < 3:
            raise DatabaseError("away")
        record(claim, trials, lines)

    closed: list[bool] = []
    fake_engine("success")
    monkeypatch.setattr(lease, "connection", SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(lease, "record", away_at_first)
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert [trial.batch_size for trial in analysis.trials.all()] == [16, 300]
    assert closed == [True, True]  # a broken connection is not reused for the retry


def test_a_lease_ends_before_another_worker_may_claim_the_analysis() -> None:
    slowest = timeouts.LEASE_SECONDS + 2 * TERM_GRACE_SECONDS
    assert (
        3 * timeouts.HEARTBEAT_SECONDS
        < timeouts.SILENT_AFTER.total_seconds()
        < timeouts.LEASE_SECONDS
    )
    assert slowest < timeouts.STALE_AFTER.total_seconds()


@pytest.mark.longer
def test_a_stopping_worker_requeues_its_analysis(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("hang")
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(worker, "_stopping", threading.Event())
    record = lease.record

    def stopped_by_then(claim, trials, lines):  # type: ignore[no-untyped-def]  # as lease.record
        record(claim, trials, lines)
        worker.stop(15, None)

    monkeypatch.setattr(lease, "record", stopped_by_then)
    analysis = make_analysis(member)
    with pytest.raises(SystemExit):
        worker.run(analysis.job.pk)

    analysis.refresh_from_db()
    assert (analysis.status, analysis.job.losses) == (Status.QUEUED, 0)
    assert "Another one continues" in _messages(analysis)[-1]
    assert analysis.job.state == Status.QUEUED


@pytest.mark.longer
def test_a_cancelled_analysis_ends_its_engine_soon(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("hang")
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    engine = worker.engines.take()
    monkeypatch.setattr(worker.engines, "take", lambda _environment: engine)
    check = lease.is_to_end

    def cancelled_by_then(claim: lease.Lease) -> bool:
        services.cancel(Analysis.objects.get(pk=claim.subject_id), member)
        return check(claim)

    monkeypatch.setattr(lease, "is_to_end", cancelled_by_then)
    analysis = _run(member)

    assert analysis.status == Status.CANCELLED
    assert analysis.failure_reason == "Cancelled by grace."
    assert analysis.finished_at is not None
    assert _gone_soon(engine.pid)


def test_the_next_worker_gets_the_trials_of_the_last_one(member: User, fake_engine: Behave) -> None:
    fake_engine("resume")
    analysis = make_analysis(member)
    add_trial(analysis, make_trial(48))
    worker.run(analysis.job.pk)

    assert _messages(analysis) == ["got bert, known [48]"]


def test_one_engine_serves_one_prediction_after_another(member: User, fake_engine: Behave) -> None:
    fake_engine("success")
    engines = []
    for _ in range(3):
        assert _run(member).status == Status.SUCCEEDED
        engines.append(worker.engines._warm.get(OWN))

    assert len({engine.pid for engine in engines if engine}) == 1


@pytest.mark.parametrize("behaviour", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_an_engine_without_a_result_is_not_reused(
    member: User, fake_engine: Behave, settings: Settings, behaviour: str
) -> None:
    fake_engine(behaviour)
    settings.ENGINE_DEADLINE_SECONDS = 0.5
    worker.keep_warm()
    first = worker.engines._warm.get(OWN)
    assert _run(member).status == Status.FAILED

    assert first is not None
    assert first.returncode is not None
    assert worker.engines._warm.get(OWN) is not first


def test_an_idle_worker_stops_immediately(
    fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("success")
    monkeypatch.setattr(worker, "_stopping", threading.Event())
    worker.keep_warm()
    engine = worker.engines.take()
    worker.engines._warm[OWN] = engine
    with pytest.raises(SystemExit):
        worker.stop(15, None)

    assert engine.returncode is not None
