"""An analysis of any GPU becomes one of the GPU that its result names."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from analyses import services
from analyses.jobs import lease
from analyses.lab.settings import set_price
from analyses.models import Analysis, CountedSavings, Job
from analyses.queries import has_advice
from analyses.tests.factories import make_request, make_result
from engine.gpus import ANY

pytestmark = pytest.mark.django_db


def answered(member: User, gpu: str = "a100-80gb", **fields: object) -> Analysis:
    """Submitted for any GPU, and answered for this one."""
    asked: dict[str, object] = {"model": "bert", "gpu": ANY} | fields
    analysis = services.submit(member, asked)
    held = lease.claim(Job.objects.get(analysis=analysis).pk, "node")
    assert held is not None
    lease.finish(held, make_result(gpu=gpu, current=analysis.current_batch_size))
    analysis.refresh_from_db()
    return analysis


def test_while_it_runs_it_is_of_any_gpu(member: User) -> None:
    analysis = services.submit(member, {"model": "bert", "gpu": ANY})
    assert analysis.gpu == ANY
    assert analysis.request_hash == ""  # prices may change, so nothing is reused
    assert "price_per_hour_usd" not in analysis.assumed_by


def test_once_answered_it_is_an_analysis_of_the_chosen_gpu(member: User) -> None:
    analysis = answered(member, most_usd_per_hour=5)
    same = services.submit(member, make_request(gpu="a100-80gb") | {"price_per_hour_usd": None})
    assert analysis.gpu == "a100-80gb"
    assert analysis.request == same.request
    assert analysis.assumed_by == same.assumed_by
    assert analysis.workload_key == same.workload_key
    assert CountedSavings.objects.get().gpu == "a100-80gb"


def test_that_there_was_no_batch_stays_known(member: User) -> None:
    analysis = answered(member, current_batch_size=None)
    assert (analysis.gpu, analysis.current_batch_size) == ("a100-80gb", None)


def test_it_is_stored_with_the_labs_price(member: User) -> None:
    set_price(member, "a100-80gb", 0.5)
    analysis = answered(member)
    assert analysis.request["price_per_hour_usd"] == 0.5
    assert analysis.assumed_by["price_per_hour_usd"] == "lab"


def test_an_analysis_of_one_gpu_stays_as_it_was_asked(member: User) -> None:
    analysis = answered(member, gpu="a10")
    of_one = services.submit(member, make_request())
    before = of_one.request
    held = lease.claim(Job.objects.get(analysis=of_one).pk, "node")
    if held is not None:  # else it was answered from the first one
        lease.finish(held, make_result())
    of_one.refresh_from_db()
    assert of_one.request == before
    assert analysis.gpu == of_one.gpu


def test_advice_waits_until_the_gpu_is_chosen(member: User) -> None:
    searched = services.submit(member, {"model": "bert", "gpu": ANY})
    assert not has_advice(searched)  # its engine would compete with the search
    assert has_advice(answered(member, sequence_length=64))
