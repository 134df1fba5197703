"""The client with the real API: both sides must agree."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis, make_user
from engine.client import Changed, Lab, NotAllowed, NotFinished, NotFound, Refused, Unavailable
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import ApiToken, Scope

pytestmark = pytest.mark.database


def _lab(live_server: LiveServer, member: User, scope: Scope = Scope.WRITE) -> Lab:
    return Lab(live_server.url, tokens.create(member, "a script", scope, 7)[1])


@pytest.mark.longer
def test_the_client_submits_waits_and_cancels(live_server: LiveServer, member: User) -> None:
    lab = _lab(live_server, member)
    asked = lab.analyze(model="bert", gpu="a10")

    assert (asked.status, asked.owner, asked.gpu) == ("queued", "grace", "a10")
    with pytest.raises(NotFinished, match="is queued"):
        lab.wait(asked.id, 0.3)
    assert lab.cancel(asked.id).status == "cancelled"
    assert lab.cancel(asked.id).status == "cancelled"
    assert [found.id for found in lab.analyses(status="cancelled")] == [asked.id]
    with pytest.raises(NotFound):
        lab.analysis(999)


def test_the_client_reads_every_page(live_server: LiveServer, member: User) -> None:
    pks = [make_analysis(member).pk for _ in range(5)]

    found = _lab(live_server, member).analyses(page_size=2)
    assert [analysis.id for analysis in found] == pks[::-1]


def test_the_client_adopts(live_server: LiveServer, member: User) -> None:
    done, failed = make_analysis(member, Status.SUCCEEDED), make_analysis(member, Status.FAILED)
    lab = _lab(live_server, member)

    assert lab.adopt(done.pk).adopted
    assert lab.adopt(done.pk).adopted
    with pytest.raises(Refused, match="no recommendation"):
        lab.adopt(failed.pk)
    with pytest.raises(NotAllowed):
        _lab(live_server, make_user("eve")).adopt(done.pk)


def test_the_client_labels_without_overwriting_others(
    live_server: LiveServer, member: User
) -> None:
    number = make_analysis(make_user("eve")).pk
    lab = _lab(live_server, member)
    read = lab.analysis(number)
    written = lab.label(number, tags=["thesis"], note="Before the fix.", version=read.version)

    assert (written.tags, written.facts["note"]) == (("thesis",), "Before the fix.")
    with pytest.raises(Changed):
        lab.label(number, tags=[], version=read.version)
    assert lab.label(number, tags=["a"], version=written.version).tags == ("a",)
    assert lab.label(number, note="").facts["note"] is None
    with pytest.raises(Refused) as refused:
        lab.label(number, tags="thesis")
    assert set(refused.value.fields) == {"tags"}
    (listed,) = lab.analyses()
    with pytest.raises(Refused, match="ETag"):  # rows of a list have no version
        lab.label(number, note="x", version=listed.version)


def test_the_client_compares_and_reads_savings(live_server: LiveServer, member: User) -> None:
    pks = [make_analysis(member, Status.SUCCEEDED).pk for _ in range(2)]
    lab = _lab(live_server, member)

    assert lab.compare(pks, base=pks[1])
    assert "realised" in lab.savings(by="gpu")["totals"]


def test_an_invalid_field_is_reported_by_name(live_server: LiveServer, member: User) -> None:
    with pytest.raises(Refused) as refused:
        _lab(live_server, member).analyze(model="bert", gpu="a11", current_batch_size=0)
    assert set(refused.value.fields) == {"gpu", "current_batch_size"}


def test_a_read_only_or_expired_token_is_refused(live_server: LiveServer, member: User) -> None:
    lab = _lab(live_server, member, Scope.READ)
    with pytest.raises(NotAllowed, match="read-only"):
        lab.analyze(model="bert", gpu="a10")
    ApiToken.objects.all().delete()

    with pytest.raises(NotAllowed, match="Create a new token"):
        lab.analysis(1)
    assert not Analysis.objects.exists()


def test_a_rate_limit_is_reported_with_the_wait(
    live_server: LiveServer, member: User, settings: Settings
) -> None:
    settings.API_UNITS_PER_MINUTE = 0.25  # three minutes, longer than the client waits
    lab = _lab(live_server, member)

    with pytest.raises(Unavailable, match=r"429.*try again in"):
        lab.analysis(1)
