"""The desk: takes lookups, asks its engine, and leaves none without an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import psutil
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from pytest_django import Settings

from analyses import canary
from analyses.lookups import desk, services
from analyses.lookups.desk import Seat
from analyses.models import Ask, Lookup, LookupStatus
from engine.request import AnalysisRequest

Behave = Callable[[str], list[str]]
NODE = "lab-1"


@pytest.fixture
def seat(db: None, settings: Settings) -> Iterator[Seat]:
    made = Seat(Ask.PREDICT, NODE, keeps_engine=True)
    yield made
    made.leave()


def put(member: User, ask: Ask = Ask.PREDICT, **fields: object) -> Lookup:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)
    return services.put(member, ask, request)


def work(seat: Seat, lookup: Lookup, seconds: float = 120) -> Lookup:
    until = monotonic() + seconds
    while not lookup.is_final and monotonic() < until:
        seat.look()
        lookup.refresh_from_db()
    return lookup


def failure_of(lookup: Lookup) -> dict[str, Any]:
    assert lookup.status == LookupStatus.FAILED
    failure: dict[str, Any] = lookup.failure or {}
    return failure


def engine_pid(seat: Seat) -> int:
    warm = seat._engines._warm
    assert warm is not None
    return warm.pid


def test_it_answers_one_question_after_the_other_with_one_engine(
    member: User, fake_engine: Behave, seat: Seat
) -> None:
    fake_engine("lookup")
    assert not seat.look()  # nothing to do: it has an engine ready
    pids = {engine_pid(seat)}
    for size in (3, 4):
        lookup = work(seat, put(member, current_batch_size=size))
        assert (lookup.status, lookup.answer) == (LookupStatus.ANSWERED, {"batch_size": size})
        pids.add(engine_pid(seat))
    assert len(pids) == 1


def test_the_engine_s_own_reason_is_stored_and_the_engine_kept(
    member: User, fake_engine: Behave, seat: Seat
) -> None:
    fake_engine("wrong")
    lookup = work(seat, put(member))
    assert failure_of(lookup)["fields"] == {"config": "there is none"}
    assert psutil.pid_exists(engine_pid(seat))


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("crash", "ended with status 3"), ("killed", "signal 9"), ("dead", "cannot start")],
)
def test_an_engine_that_dies_is_told_and_the_next_question_gets_a_new_one(
    member: User, fake_engine: Behave, seat: Seat, behaviour: str, reason: str
) -> None:
    fake_engine(behaviour)
    lookup = work(seat, put(member))
    assert failure_of(lookup)["code"] == "crashed"
    assert reason in failure_of(lookup)["reason"]

    fake_engine("lookup")
    assert work(seat, put(member)).status == LookupStatus.ANSWERED


def test_one_that_takes_too_long_fails_and_its_engine_is_ended(
    member: User, fake_engine: Behave, seat: Seat, settings: Settings
) -> None:
    settings.LOOKUP_DEADLINE_SECONDS = {"predict": 0.3}
    fake_engine("hang")
    lookup = put(member)
    seat.look()
    assert seat._work is not None
    pid = seat._work.engine.pid
    work(seat, lookup)
    assert failure_of(lookup)["code"] == "deadline"
    assert "No answer within 0.3 seconds" in failure_of(lookup)["reason"]
    assert not psutil.pid_exists(pid)


def test_an_engine_that_cannot_be_started_is_told(
    member: User, settings: Settings, seat: Seat
) -> None:
    settings.ENGINE_COMMAND = ["/nowhere/python"]
    lookup = work(seat, put(member))
    assert "/nowhere/python" in failure_of(lookup)["reason"]


def test_a_desk_that_stops_gives_back_what_it_has(
    member: User, fake_engine: Behave, seat: Seat
) -> None:
    fake_engine("hang")
    lookup = put(member)
    seat.look()
    seat.leave()
    lookup.refresh_from_db()
    assert (lookup.status, lookup.tries) == (LookupStatus.WAITING, 0)


def test_what_was_taken_away_is_worked_on_no_more(
    member: User, fake_engine: Behave, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "BEAT_EVERY_SECONDS", 0)
    fake_engine("hang")
    lookup = put(member)
    assert seat.look()
    services.release(NODE)
    seat._node = "lab-2"
    taken = services.take(Ask.PREDICT, "lab-3")
    assert taken is not None
    assert not seat.look()
    assert services.answer(taken, {})
    lookup.refresh_from_db()
    assert lookup.status == LookupStatus.ANSWERED


def test_an_answer_outlasts_a_database_that_is_away(
    member: User, fake_engine: Behave, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("lookup")
    lookup = put(member)
    store, failures = services.answer, [OperationalError("gone"), OperationalError("gone")]

    def answer(*args: object) -> bool:
        if failures:
            raise failures.pop()
        return store(*args)  # type: ignore[arg-type]  # the arguments are those of the function replaced

    monkeypatch.setattr(services, "answer", answer)
    while failures:
        try:
            seat.look()
        except OperationalError:
            continue
    assert work(seat, lookup).answer == {"batch_size": 16}


def test_a_plan_does_not_keep_a_prediction_waiting(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.LOOKUP_DEADLINE_SECONDS = {"predict": 120, "plan": 120}
    monkeypatch.setattr(canary, "sing", lambda: None)
    fake_engine("hang")
    plan = put(member, Ask.PLAN)
    seen: list[Lookup] = []

    def is_to_stop() -> bool:
        plan.refresh_from_db()
        if plan.status == LookupStatus.RUNNING and not seen:
            fake_engine("lookup")
            seen.append(put(member))
        return bool(seen) and Lookup.objects.get(pk=seen[0].pk).is_final

    monkeypatch.setattr(Seat, "_prepare", lambda _: None)
    desk.work(NODE, is_to_stop)
    seen[0].refresh_from_db()
    plan.refresh_from_db()
    assert (seen[0].status, plan.status) == (LookupStatus.ANSWERED, LookupStatus.WAITING)


@pytest.mark.torch
def test_the_real_engine_answers_one_batch_size_after_the_other(
    member: User, seat: Seat, settings: Settings
) -> None:
    settings.LOOKUP_DEADLINE_SECONDS = {"predict": 600}
    used = []
    for size in (8, 512):
        fields: dict[str, Any] = {"model": "distilbert", "sequence_length": 16, "gpu": "t4"}
        lookup = work(seat, put(member, current_batch_size=size, **fields), seconds=600)
        assert lookup.answer is not None, lookup.failure
        trial = lookup.answer["trial"]
        assert (trial["batch_size"], trial["fits"], trial["source"]) == (size, True, "predicted")
        used.append(trial["device_used_bytes"])
    assert used[0] < used[1]
