"""The life of a lookup: asked once, shared, dropped, taken, lost, forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses import pace, recovery
from analyses.engine_events import Failure
from analyses.lookups import selectors, services
from analyses.lookups.questions import predictable
from analyses.lookups.services import Hold
from analyses.models import Ask, Lookup, LookupStatus, Node
from analyses.tests.factories import make_user
from engine.errors import InvalidInput
from engine.request import AnalysisRequest

NODE = "lab-1"


def request_of(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)


def put(member: User, ask: Ask = Ask.PREDICT, *, page: bool = False, **fields: object) -> Lookup:
    return services.put(member, ask, request_of(**fields), for_page=page)


def take(ask: Ask = Ask.PREDICT) -> Hold:
    hold = services.take(ask, NODE)
    assert hold is not None
    return hold


def status_of(lookup: Lookup) -> str:
    lookup.refresh_from_db()
    return lookup.status


def age(lookup: Lookup, **columns: timedelta) -> None:
    now = timezone.now()
    Lookup.objects.filter(pk=lookup.pk).update(**{name: now - by for name, by in columns.items()})


def test_a_question_is_taken_and_answered_once(member: User) -> None:
    lookup = put(member, current_batch_size=64)
    hold = take()
    assert (hold.pk, hold.request["current_batch_size"]) == (lookup.pk, 64)
    assert services.take(Ask.PREDICT, "lab-2") is None

    assert services.beat(hold, "tracing")
    assert services.answer(hold, {"trial": {}})
    assert status_of(lookup) == LookupStatus.ANSWERED
    assert (lookup.answer, lookup.progress, lookup.node) == ({"trial": {}}, "tracing", NODE)
    assert not services.answer(hold, {"late": True})


@pytest.mark.parametrize("state", ["waiting", "running", "answered"])
def test_who_asks_the_same_joins(member: User, state: str) -> None:
    lookup = put(member)
    if state != "waiting":
        hold = take()
        if state == "answered":
            services.answer(hold, {})
    other = make_user("alan")

    assert put(other) == lookup
    assert set(lookup.askers.all()) == {member, other}
    assert Lookup.objects.count() == 1


def test_what_does_not_change_the_answer_does_not_change_the_question(member: User) -> None:
    same: dict[str, Any] = {"hours_per_run": 3, "price_per_hour_usd": 2, "batch_multiple": 8}
    assert put(member) == put(member, **same)
    assert put(member, Ask.PLAN) != put(member, Ask.PLAN, **same)
    assert put(member) != put(member, Ask.PLAN)
    assert put(member) != put(member, precision="tf32")


def test_a_model_of_the_hub_is_asked_about_anew_each_time(member: User) -> None:
    assert put(member, model="someone/their-model") != put(member, model="someone/their-model")


@pytest.mark.parametrize("end", ["failed", "dropped"])
def test_what_has_no_answer_is_asked_again(member: User, end: str) -> None:
    first = put(member, page=True)
    if end == "failed":
        services.fail(take(), Failure("failed", "no luck", {"model": "odd"}))
        assert status_of(first) == end
        assert first.failure == {"code": "failed", "reason": "no luck", "fields": {"model": "odd"}}
    else:
        put(member, page=True, current_batch_size=5)
        assert status_of(first) == end
    assert put(member, page=True) != first


# Dropped


def test_a_page_has_one_waiting_prediction_the_newest(member: User) -> None:
    typed = [put(member, page=True, current_batch_size=size) for size in (1, 12, 128)]
    assert [status_of(one) for one in typed] == ["dropped", "dropped", "waiting"]
    assert take().pk == typed[-1].pk


def test_only_waiting_predictions_of_that_member_s_pages_are_dropped(member: User) -> None:
    running = put(member, page=True, current_batch_size=1)
    take()
    kept = [
        put(member, current_batch_size=2),  # a script's
        put(member, Ask.PLAN, page=True),
        put(make_user("alan"), page=True, current_batch_size=3),
    ]
    put(member, page=True, current_batch_size=4)

    assert status_of(running) == LookupStatus.RUNNING
    assert {status_of(one) for one in kept} == {LookupStatus.WAITING}


def test_what_somebody_else_wants_too_stays(member: User) -> None:
    lookup = put(member, page=True)
    put(make_user("alan"), page=True)
    put(member, page=True, current_batch_size=4)
    assert status_of(lookup) == LookupStatus.WAITING


def test_what_a_script_wants_too_stays(member: User) -> None:
    lookup = put(member, page=True)
    put(member)
    put(member, page=True, current_batch_size=4)
    age(lookup, asked_at=timedelta(minutes=1))
    recovery.recover()
    assert status_of(lookup) == LookupStatus.WAITING


def test_a_page_that_has_gone_is_not_answered(member: User) -> None:
    left, watched = put(member, Ask.PLAN, page=True), put(member, page=True)
    for lookup in (left, watched):
        age(lookup, asked_at=services.WANTED_FOR + timedelta(seconds=1))
    services.still_wanted(watched)

    assert services.take(Ask.PLAN, NODE) is None
    recovery.recover()
    assert [status_of(left), status_of(watched)] == ["dropped", "waiting"]


# Taken


def test_who_looks_at_a_page_goes_before_a_script(member: User) -> None:
    script, page = put(member), put(member, page=True, current_batch_size=3)
    assert [take().pk, take().pk] == [page.pk, script.pk]


def test_each_kind_is_taken_by_itself(member: User) -> None:
    plan = put(member, Ask.PLAN)
    assert services.take(Ask.PREDICT, NODE) is None
    assert take(Ask.PLAN).pk == plan.pk


def test_a_draining_node_takes_nothing_new(member: User) -> None:
    put(member)
    Node.objects.create(name=NODE, heartbeat_at=timezone.now(), draining=True)
    assert services.take(Ask.PREDICT, NODE) is None
    assert services.take(Ask.PREDICT, "lab-2") is not None


# Lost


def test_a_lookup_whose_desk_has_gone_is_tried_once_more_and_then_fails(member: User) -> None:
    lookup = put(member)
    for left in (LookupStatus.WAITING, LookupStatus.FAILED):
        hold = take()
        age(lookup, heartbeat_at=pace.SILENT_AFTER + timedelta(seconds=1))
        recovery.recover()
        assert status_of(lookup) == left
        assert not services.answer(hold, {})
        assert not services.beat(hold, "")
    assert lookup.failure is not None
    assert lookup.failure["code"] == services.LOST
    assert "stopped 2 times" in lookup.failure["reason"]


def test_one_that_is_worked_on_is_left_alone(member: User) -> None:
    lookup = put(member)
    take()
    recovery.recover()
    assert status_of(lookup) == LookupStatus.RUNNING


def test_a_new_desk_releases_what_the_one_before_it_left(member: User) -> None:
    lookup = put(member)
    take()
    services.release("lab-2")
    assert status_of(lookup) == LookupStatus.RUNNING
    services.release(NODE)
    assert status_of(lookup) == LookupStatus.WAITING


def test_one_given_back_by_a_desk_that_stops_has_not_been_tried(member: User) -> None:
    lookup = put(member)
    for _ in range(5):
        services.give_back(take())
    assert (status_of(lookup), lookup.tries) == (LookupStatus.WAITING, 0)


# Forgotten


def test_answers_are_forgotten_a_week_after_somebody_last_asked(member: User) -> None:
    forgotten, asked_again = put(member), put(member, current_batch_size=3)
    for lookup in (forgotten, asked_again):
        services.answer(take(), {})
        age(lookup, asked_at=services.KEPT_FOR + timedelta(hours=1))
    put(member, current_batch_size=3)
    recovery.recover()
    assert list(Lookup.objects.all()) == [asked_again]


# Who may see, and what can be asked


def test_only_who_asked_and_admins_see_a_lookup(member: User) -> None:
    lookup = put(member)
    other, admin = make_user("alan"), make_user("root", is_staff=True)
    seen = {one: selectors.visible_to(one).contains(lookup) for one in (member, other, admin)}
    assert seen == {member: True, other: False, admin: True}
    member.is_active = False
    assert not selectors.visible_to(member).exists()


@pytest.mark.parametrize(
    ("gpu", "wanted", "found"),
    [
        ("NVIDIA A10", "local:NVIDIA A10", "a10"),
        ("NVIDIA A10", "local", "a10"),
        ("Some GPU", "local", None),
    ],
)
def test_a_gpu_of_the_lab_is_predicted_if_the_catalogue_has_it(
    db: None, gpu: str, wanted: str, found: str | None
) -> None:
    Node.objects.create(name=NODE, gpu_name=gpu, heartbeat_at=timezone.now())
    fields = {"model": "bert", "gpu": wanted}
    if found is None:
        with pytest.raises(InvalidInput, match="Some GPU is measured, not predicted"):
            predictable(fields)
    else:
        assert predictable(fields).gpu == found
