"""Another member's ids and keys in place of your own.

Reports of training runs and imported analyses of others: test_training_runs.py and
test_importing.py in analyses/tests.
"""

from __future__ import annotations

import json
import re

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core import serializers
from django.http import HttpResponseBase
from django.test import Client

from analyses.models import (
    IdempotencyKey,
    NotificationChoices,
    Query,
    SavedView,
    ShareLink,
    Status,
)
from analyses.models.notifications import Channel
from analyses.pages.history import views
from analyses.tests.factories import make_analysis, make_notification
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import ApiToken, SignIn
from memorymark_site.accounts.roles import Role, stored_role
from memorymark_site.tests.test_who_may_what import API, METHODS, OURS, PAGES, Lab, To

HERS = (
    "olgas secret plan",
    "olgas-hook.example",
    "whsec_b2xnYXM=",
    "olga@lab.example",
    "olgas own",
)
QUESTION = {"model": "bert", "gpu": "a10", "current_batch_size": 16}


@pytest.fixture(scope="module")
def module_lab(module_lab: Lab) -> Lab:
    """The lab of the role matrix, and everything that is private to a member."""
    lab = module_lab
    olga = lab.people["owner"]
    User.objects.filter(pk=olga.pk).update(email="olga@lab.example")
    view = views.save_view(olga, "olgas secret plan", "q=olgas+own", is_shared=False)
    lab.pks["history/views/"] = view.pk
    NotificationChoices.objects.create(
        member=olga,
        by_webhook=True,
        webhook_url="https://olgas-hook.example/",
        webhook_secret="whsec_b2xnYXM=",  # of this test
    )
    make_notification(lab.analysis, Channel.WEBHOOK, last_error="olgas own hook says no")
    return lab


def _everything() -> dict[str, str]:
    """All rows of the database by table, except those that any visit changes."""
    left = {"sessions.Session", "accounts.Attempt", "accounts.SignIn", "admin.LogEntry"}
    return {
        model._meta.label: re.sub(
            r'"(last_used_at|last_login|last_seen_at|times_seen)": [^,}]+',
            "",
            serializers.serialize("json", model._default_manager.order_by("pk")),
        )
        for model in apps.get_models()
        if model._meta.label not in left
    }


def _read(answer: HttpResponseBase) -> str:
    return b"".join(answer).decode(errors="replace")


HERS_ALONE = [
    route for route in OURS if To.OWN in (PAGES | API)[route].values() and "<" in route
] + ["tokens/<str:token_key>/revoke/", "account/sessions/<int:pk>/end/"]


@pytest.mark.parametrize("route", HERS_ALONE)
def test_another_members_things_cannot_be_changed_by_id(lab: Lab, route: str) -> None:
    """With every method, as another member and as a viewer, by session and by token."""
    sign_in = SignIn.objects.filter(user=lab.people["owner"]).first()
    assert sign_in is not None
    token = ApiToken.objects.get(user=lab.people["owner"])
    address = lab.address(route)
    if "token_key" in route:
        address = f"/tokens/{token.token_key}/revoke/"
    elif "sessions" in route:
        address = f"/account/sessions/{sign_in.pk}/end/"
    before = _everything()
    for name in ("other", "viewer", "anonymous"):
        for client in (lab.by_session(name), lab.by_token(name)):
            for method in METHODS:
                if (PAGES | API)[route].get(method) is To.MEMBERS:
                    continue  # any member may do this: see docs/members.md
                answer = getattr(client, method)(address)
                assert not [text for text in HERS if text in _read(answer)], (name, method)
    assert _everything() == before
    assert SignIn.objects.filter(pk=sign_in.pk).exists()


def test_the_walk_covers_some_addresses() -> None:
    assert len(HERS_ALONE) >= 12


@pytest.mark.longer
@pytest.mark.parametrize(
    "name",
    ["other", *(pytest.param(name, marks=pytest.mark.slow) for name in ("viewer", "admin"))],
)
def test_no_page_shows_another_members_private_data(lab: Lab, name: str) -> None:
    """Every page and API list, as another member; an admin sees her address."""
    for route, methods in (PAGES | API).items():
        if methods.get("get", To.NOBODY) is To.NOBODY:
            continue
        said = _read(lab.by_session(name).get(lab.address(route)))
        told = [text for text in HERS if text in said]
        assert told == [] or (name == "admin" and told == ["olga@lab.example"]), route


def test_another_members_ids_in_lists(lab: Lab) -> None:
    """Deleting several, including some of hers, leaves hers."""
    mine = make_analysis(lab.people["other"], Status.SUCCEEDED)
    lab.by_session("other").post(f"/history/delete/?ids={lab.analysis.pk},{mine.pk}")
    left = set(type(mine).objects.values_list("pk", flat=True))
    assert lab.analysis.pk in left
    assert mine.pk not in left


@pytest.mark.parametrize(
    "ids", ["0", "-1", "1e9", "9" * 30, "1,2' OR 1=1--", "1;DROP TABLE", "%00"]
)
@pytest.mark.parametrize("page", ["/compare/", "/compare/bars.svg", "/api/v1/compare/", "/new/"])
def test_invalid_ids(lab: Lab, page: str, ids: str) -> None:
    client = lab.by_session("other")
    answer = client.get(page, {"ids": ids, "from": ids})
    assert answer.status_code in (200, 302, 400, 404)
    assert "Traceback" not in _read(answer)


def test_another_members_idempotency_key(lab: Lab) -> None:
    """Guessed or overheard, it creates a new analysis for the attacker instead of showing hers."""
    sent = {"Idempotency-Key": "nightly"}
    body = json.dumps(QUESTION)
    answers = {
        name: lab.by_token(name)
        .post("/api/v1/analyses/", body, content_type="application/json", headers=sent)
        .json()
        for name in ("owner", "other")
    }
    assert answers["owner"]["id"] != answers["other"]["id"]
    assert answers["other"]["owner"] == "otto"
    assert IdempotencyKey.objects.filter(key="nightly").count() == 2


def test_another_members_query_by_its_id(lab: Lab) -> None:
    """Only members who submit the same query share it."""
    query = Query.objects.get()
    for path in (f"/api/v1/lookups/{query.pk}/", f"/new/preview/{query.pk}/"):
        assert lab.by_session("other").get(path).status_code == 404
        assert lab.by_session("owner").get(path).status_code == 200


def test_fields_that_claim_another_identity(lab: Lab) -> None:
    """Mass assignment: an owner, a role, an id in the body of a request."""
    claimed = {"owner": "olga", "owner_id": 1, "id": lab.analysis.pk, "is_staff": True}
    otto = lab.people["other"]
    answer = lab.by_token("other").post(
        "/api/v1/analyses/", json.dumps(QUESTION | claimed), content_type="application/json"
    )
    assert answer.status_code == 400  # fields that do not exist
    lab.by_session("other").post("/account/", claimed)
    lab.by_session("other").post(
        "/notifications/", claimed | {"member": "1", "only_after_seconds": 1}
    )
    lab.by_session("other").post(
        "/tokens/", {"name": "x", "days": "30", "scope": "read", "user": lab.people["owner"].pk}
    )
    otto.refresh_from_db()
    assert not otto.is_staff
    assert not otto.is_superuser
    assert ApiToken.objects.filter(user=lab.people["owner"]).count() == 1
    hers = NotificationChoices.objects.get(member=lab.people["owner"])
    assert hers.webhook_url == "https://olgas-hook.example/"


def test_a_role_that_the_guest_chooses(lab: Lab) -> None:
    """A viewer's invitation with a form that says admin."""
    _, key = invitations.invite(lab.people["admin"], Role.VIEWER)
    claimed = {"role": "admin", "is_staff": "on", "is_superuser": "1", "groups": "1"}
    password = "long-Enough-9"  # noqa: S105  # of this test
    words = {"username": "eve", "email": "", "password1": password, "password2": password}
    Client().post(f"/invitation/{key}/", words | claimed)
    eve = User.objects.get(username="eve")
    assert stored_role(eve) is Role.VIEWER
    assert not eve.is_superuser


def test_a_share_link_opens_one_analysis_and_nothing_else(lab: Lab) -> None:
    key = lab.share_token
    guest = Client()
    assert guest.get(f"/shared/{key}/").status_code == 200
    for path in (
        f"/shared/{key}/../../{lab.second.pk}/", f"/shared/{key}/log/", f"/shared/{key}%00/",
        f"/shared/{key[:-1]}/", f"/shared/{key.swapcase()}/", f"/shared/{lab.analysis.pk}/",
        f"/shared/{ShareLink.objects.get().digest}/",
    ):  # fmt: skip
        assert guest.get(path).status_code in (302, 404), path
    assert guest.get(f"/{lab.analysis.pk}/").status_code == 302


def test_another_members_saved_view_is_not_replaced_by_name(lab: Lab) -> None:
    lab.by_session("other").post(
        "/history/views/", {"name": "olgas secret plan", "query": "q=taken", "is_shared": "on"}
    )
    hers = SavedView.objects.get(owner=lab.people["owner"], name="olgas secret plan")
    assert hers.query == "q=olgas+own"
    assert not hers.is_shared
