"""An answer that nothing makes fit: what it needs on its first screen, and which GPU has it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses.models import Analysis, Node, QueryKind, Status
from analyses.pages.analysis.no_fit import no_fit_of
from analyses.tests.factories import add_trial, make_analysis, make_request, make_trial
from analyses.tests.query_answers import answer_next, make_plan, make_rung
from engine.core.errors import DoesNotFit
from engine.core.sizes import gib
from engine.gpus import GPUS

A10 = GPUS["a10"].total_bytes
NEEDED = 2 * A10


@pytest.fixture
def page(client: Client, member: User) -> Client:
    Node.objects.create(name="lab-1", heartbeat_at=timezone.now())
    client.force_login(member)
    return client


def refused(member: User, **asked: object) -> Analysis:
    """An analysis whose batches of 1 and 2 need twice the GPU and more."""
    analysis = make_analysis(
        member,
        Status.FAILED,
        failure_code=DoesNotFit.code,
        failure_reason="Even batch 1 needs 44.1 of 22.1 GiB.",
        request=make_request(**asked),
    )
    for size, needed in ((2, 3 * A10), (1, NEEDED)):
        trial = replace(make_trial(size), fits=False, device_used_bytes=needed)
        add_trial(analysis, trial)
    return analysis


def shown(page: Client, analysis: Analysis) -> str:
    html = page.get(f"/{analysis.pk}/").content.decode()
    return html.split('id="no-fit-title"')[1].split("</section>")[0]


def plan_of(page: Client, analysis: Analysis, **parts: object) -> None:
    page.post(f"/{analysis.pk}/advice/")
    why_not = make_rung(why_not="even batch 1 needs 44.1 of 22.1 GiB", moves=[], fields={})
    answer_next(QueryKind.PLAN, make_plan(ladder=[why_not.to_dict()], **parts))


def test_its_bar_is_the_smallest_batch_against_the_gpu(page: Client, member: User) -> None:
    first = shown(page, refused(member))
    assert first.count("use-used") == 1
    assert "use-current" in first
    assert "The smallest batch, 1, on NVIDIA A10" in first
    assert f"{gib(NEEDED)} of {gib(A10)} (200%)" in first
    assert f"does not fit, {gib(NEEDED - A10)} too much" in first
    assert "badge-predicted" in first


def test_a_memory_limit_is_what_there_is(page: Client, member: User) -> None:
    first = shown(page, refused(member, memory_limit_bytes=A10 // 2))
    assert f"{gib(NEEDED)} of {gib(A10 // 2)}" in first


def test_once_the_plan_is_there_it_says_which_gpu_holds_it(page: Client, member: User) -> None:
    analysis = refused(member)
    assert "Nothing that was tried" not in shown(page, analysis)
    plan_of(page, analysis)
    first = shown(page, analysis)
    assert "Nothing that was tried makes it fit on this GPU." in first
    assert "Cheapest per sample that surely fits:" in first
    assert 'href="#gpus"' in first
    assert 'id="gpus"' in page.get(f"/{analysis.pk}/").content.decode()


def test_a_limit_below_the_context_has_no_trial_and_still_the_gpus(
    page: Client, member: User
) -> None:
    analysis = refused(member)
    analysis.trials.all().delete()
    plan_of(page, analysis)
    assert 'href="#gpus"' in shown(page, analysis)
    assert 'id="gpus"' in page.get(f"/{analysis.pk}/").content.decode()


def test_it_says_so_where_no_gpu_of_the_catalogue_holds_it(page: Client, member: User) -> None:
    analysis = refused(member)
    nowhere = [option | {"fits": False, "why_not": "no"} for option in make_plan()["options"]]
    plan_of(page, analysis, options=nowhere)
    assert "Nor does it fit on any other catalogue GPU." in shown(page, analysis)


def test_a_gpu_or_a_need_that_is_not_known_has_no_bar(member: User) -> None:
    analysis = refused(member)
    analysis.gpu = "local"
    assert no_fit_of(analysis, None).bars == []
    bare = make_analysis(member, Status.FAILED, failure_code=DoesNotFit.code)
    assert no_fit_of(bare, None).bars == []


@pytest.mark.parametrize("given", [{"q": "status:does_not_fit"}, {"status": "does_not_fit"}])
def test_what_does_not_fit_is_found_alone(
    client: Client, member: User, given: dict[str, str]
) -> None:
    bare = make_analysis(member, Status.FAILED, failure_code=DoesNotFit.code)
    make_analysis(member, Status.FAILED, failure_code="crashed")
    client.force_login(member)
    found = client.get("/api/v1/analyses/", given).json()["results"]
    assert [row["id"] for row in found] == [bare.pk]
    html = client.get("/history/", given).content.decode()
    assert html.count('id="analysis-') == 1
    assert '<option value="status:does_not_fit">' in html
