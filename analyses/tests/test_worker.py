from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from pytest_django import Settings

from analyses import services, worker
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis

Behave = Callable[[str], list[str]]


def _run(member: User) -> Analysis:
    analysis = make_analysis(member)
    worker.run_analysis(analysis.pk)
    analysis.refresh_from_db()
    return analysis


def _messages(analysis: Analysis) -> list[str]:
    return [line.message for line in analysis.log_lines.all()]


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and only not collected yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = os.popen(f"ps -o stat= -p {pid}").read()  # noqa: S605  # our own number
    return bool(stat.strip()) and not stat.startswith("Z")


def _gone_soon(pid: int) -> bool:
    for _ in range(50):
        if not _is_alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_success_is_stored_whole(member: User, fake_engine: Behave) -> None:
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
        ("killed", "crashed", "signal 9.*out of memory"),
        ("silent", "crashed", "ended with status 0"),
        ("dead", "crashed", "ended with status 1.*cannot start"),
        ("no_line_end", "crashed", "ended with status 0"),
    ],
)
def test_every_other_end_is_a_failure_with_a_reason(
    member: User, fake_engine: Behave, behaviour: str, code: str, reason: str
) -> None:
    fake_engine(behaviour)
    analysis = _run(member)

    assert analysis.status == Status.FAILED
    assert analysis.failure_code == code
    assert re.search(reason, analysis.failure_reason, re.DOTALL)
    assert analysis.finished_at is not None


def test_output_that_is_no_event_goes_to_the_log(member: User, fake_engine: Behave) -> None:
    fake_engine("garbage")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    messages = _messages(analysis)
    assert "\ufffd\ufffd not text \ufffd" in messages
    assert '{"type": "dance"}' in messages
    assert "a NUL \ufffd and half a pair ?" in messages
    assert not analysis.trials.exists()


def test_a_flood_of_output_is_cut(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MOST_LOG_LINES", 1000)
    fake_engine("flood")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    messages = _messages(analysis)
    assert len(messages) == 1000
    assert messages[-1] == "The log ends here: 1,000 lines are kept."
    assert analysis.trials.count() == 1  # what is no log line is still stored


def test_a_line_without_end_is_cut(member: User, fake_engine: Behave) -> None:
    fake_engine("longest_line")
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert [len(message) for message in _messages(analysis)] == [worker.LONGEST_LOG_LINE]


def test_trials_are_stored_while_the_engine_works(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("slow")
    stored: list[tuple[float, int]] = []
    record = services.record

    def spy(claim, trials, lines):  # type: ignore[no-untyped-def]  # as services.record
        stored.append((time.monotonic(), len(list(trials))))
        record(claim, trials, lines)

    monkeypatch.setattr(services, "record", spy)
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    first, last = stored[0], stored[-1]
    assert first[1] == 1
    assert last[0] - first[0] > 0.5  # the trial was stored well before the end


def test_a_heartbeat_is_given_while_the_engine_is_silent(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("slow")
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.2)
    beats: list[float] = []
    monkeypatch.setattr(services, "heartbeat", lambda _claim: beats.append(time.monotonic()))
    _run(member)

    assert len(beats) >= 3


def test_the_deadline_ends_the_engine_and_its_children(
    member: User,
    fake_engine: Behave,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_engine("hang")
    settings.ENGINE_DEADLINE_SECONDS = 1.2
    monkeypatch.setattr("analyses.engine_process.TERM_GRACE_SECONDS", 0.2)
    engine = worker.standby.take()
    monkeypatch.setattr(worker.standby, "take", lambda: engine)
    analysis = _run(member)

    assert analysis.failure_code == "deadline"
    assert "1.2 seconds" in analysis.failure_reason
    grandchild = int(_messages(analysis)[0].removeprefix("grandchild "))
    assert _gone_soon(grandchild)
    assert _gone_soon(engine.pid)


def test_a_grandchild_that_holds_the_pipes_does_not_hold_the_analysis(
    member: User, fake_engine: Behave
) -> None:
    fake_engine("leave_grandchild")
    started = time.monotonic()
    analysis = _run(member)

    assert time.monotonic() - started < 10
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


def test_redelivery_is_harmless(member: User, fake_engine: Behave) -> None:
    fake_engine("success")
    analysis = _run(member)
    worker.run_analysis(analysis.pk)

    assert analysis.trials.count() == 2
    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED


def test_a_lost_claim_ends_the_engine_and_changes_nothing(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("slow")
    analysis = make_analysis(member)
    claim = services.claim

    def claimed_by_another(pk: int) -> services.Claim | None:
        mine = claim(pk)
        Analysis.objects.filter(pk=pk).update(status=Status.FAILED, failure_code="worker_lost")
        return mine

    monkeypatch.setattr(services, "claim", claimed_by_another)
    worker.run_analysis(analysis.pk)

    analysis.refresh_from_db()
    assert analysis.failure_code == "worker_lost"
    assert not analysis.trials.exists()


def test_the_task_returns_even_when_the_database_is_away(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object) -> None:
        raise DatabaseError("away")

    fake_engine("success")
    for name in ("record", "fail", "succeed"):
        monkeypatch.setattr(services, name, away)
    analysis = _run(member)

    assert analysis.status == Status.RUNNING  # recovery ends it by its stale heartbeat


def test_a_stopped_worker_ends_its_analysis_in_words(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("hang")
    monkeypatch.setattr("analyses.engine_process.TERM_GRACE_SECONDS", 0.2)
    stopping = threading.Event()
    monkeypatch.setattr(worker, "_stopping", stopping)
    analysis = make_analysis(member)
    threading.Timer(0.5, lambda: worker.stop(15, None)).start()
    with pytest.raises(SystemExit):
        worker.run_analysis(analysis.pk)

    analysis.refresh_from_db()
    assert analysis.failure_code == "worker_stopped"
    assert "run it again" in analysis.failure_reason


def test_an_idle_worker_stops_at_once(fake_engine: Behave, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine("success")
    monkeypatch.setattr(worker, "_stopping", threading.Event())
    worker.prepare_standby()
    engine = worker.standby.take()
    worker.standby._waiting = engine
    with pytest.raises(SystemExit):
        worker.stop(15, None)

    assert engine.returncode is not None
