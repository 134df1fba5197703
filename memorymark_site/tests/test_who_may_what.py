"""Who may call each address of the site with which method, tried with every kind of user."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from enum import Enum
from http.cookies import SimpleCookie
from itertools import product

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from analyses import queries
from analyses.models import Node, QueryKind, Status
from analyses.pages.analysis import sharing
from analyses.pages.history import views
from analyses.queries import predictable
from analyses.tests.factories import make_analysis, make_result, make_user, make_viewer
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import ApiToken
from memorymark_site.accounts.roles import Role


class To(Enum):
    """Who may use a method of an address; each of the first four includes all that follow."""

    OPEN = ("anonymous", "deactivated", "viewer", "other", "owner", "admin")
    VIEWERS = ("viewer", "other", "owner", "admin")
    MEMBERS = ("other", "owner", "admin")
    OWN = ("owner", "admin")
    ADMINS = ("admin",)
    NOBODY = ()


PEOPLE = To.OPEN.value
METHODS = ("get", "post", "put", "patch", "delete")

LOOK = {"get": To.VIEWERS}
PAGES: dict[str, dict[str, To]] = {
    "": LOOK,
    "history/": LOOK,
    "history/export.csv": LOOK,
    "history/export.json": LOOK,
    "compare/": LOOK,
    "compare/bars.svg": LOOK,
    "compare/changed.csv": LOOK,
    "compare/changed.md": LOOK,
    "compare/table.csv": LOOK,
    "compare/table.md": LOOK,
    "gpu-hours/": LOOK,
    "gpu-hours/jobs/": {"get": To.ADMINS},
    "gpu-hours/jobs/delete/": {"post": To.ADMINS},
    "gpu-hours/totals.csv": LOOK,
    "gpu-hours/largest.csv": LOOK,
    "gpus/": LOOK,
    "gpus/price/": {"get": To.ADMINS, "post": To.ADMINS},
    "gpus/add/": {"get": To.ADMINS, "post": To.ADMINS},
    "gpus/<slug:gpu>/edit/": {"get": To.ADMINS, "post": To.ADMINS},
    "gpus/<slug:gpu>/remove/": {"post": To.ADMINS},
    "gpus/<int:pk>/check/": {"post": To.ADMINS},
    "inbox/": LOOK,  # here and below only your own
    "inbox/badge/": LOOK,
    "inbox/read/": {"post": To.VIEWERS},
    "lab/": {"get": To.ADMINS, "post": To.ADMINS},
    "lab/channel/": {"post": To.ADMINS},
    "lab/channel/test/": {"post": To.ADMINS},
    "models/": LOOK,
    "new/": {"get": To.MEMBERS, "post": To.MEMBERS},
    "new/preview/": {"post": To.MEMBERS},
    "new/preview/<int:pk>/": {"get": To.OWN},
    "notifications/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "notifications/secret/": {"post": To.MEMBERS},
    "notifications/test/": {"post": To.MEMBERS},
    "search/": LOOK,
    "savings/": LOOK,
    "savings/report/": LOOK,
    "savings/report.csv": LOOK,
    "savings/superseded/": LOOK,
    "overview/<str:chart>.csv": LOOK,
    "savings/totals.csv": LOOK,
    "savings/over-time.csv": LOOK,
    "savings/analyses.csv": LOOK,
    "<int:pk>/": LOOK,
    "<int:pk>/advice/": {"get": To.VIEWERS, "post": To.MEMBERS},
    "<int:pk>/adopt/": {"post": To.OWN},
    "<int:pk>/mention/": {"post": To.MEMBERS},
    "<int:pk>/take-back/": {"post": To.OWN},
    "<int:pk>/labels/": {"get": To.MEMBERS, "post": To.MEMBERS},
    "<int:pk>/tags/": {"get": To.MEMBERS, "post": To.MEMBERS},
    "<int:pk>/cancel/": {"post": To.OWN},
    "<int:pk>/live/": LOOK,
    "<int:pk>/log/": LOOK,
    "<int:pk>/run-again/": {"post": To.MEMBERS},
    "<int:pk>/training-runs/": {"post": To.OWN},
    "<int:pk>/share/": {"post": To.OWN},
    "<int:pk>/worth/": LOOK,
    "history/selection/": LOOK,
    "history/tag/": {"get": To.MEMBERS, "post": To.MEMBERS},
    "history/project/": {"get": To.MEMBERS, "post": To.MEMBERS},
    "history/delete/": {"get": To.MEMBERS, "post": To.MEMBERS},  # it skips other members' analyses
    "history/views/": {"post": To.MEMBERS},
    "history/views/<int:pk>/delete/": {"post": To.OWN},
    "share-links/<int:pk>/revoke/": {"post": To.OWN},
    "shared/<str:token>/": {"get": To.OPEN},
    "accounts/login/": {"get": To.OPEN, "post": To.OPEN},
    "accounts/login/code/": {"get": To.OPEN, "post": To.OPEN},  # after the right password
    "accounts/login/passkey/": {"get": To.OPEN, "post": To.OPEN},
    "accounts/sso/": {"get": To.OPEN, "post": To.OPEN},
    "accounts/sso/callback/": {"get": To.OPEN},
    "accounts/logout/": {"post": To.VIEWERS},
    "setup/<str:token>/": dict.fromkeys(METHODS, To.OPEN),
    **{name: {"get": To.OPEN} for name in ("health", "live", "ready", "metrics")},
    "accounts/forgotten/": {"get": To.OPEN, "post": To.OPEN},
    "accounts/reset/<uidb64>/<token>/": {"get": To.OPEN, "post": To.OPEN},
    "invitation/<str:key>/sso/": {"post": To.OPEN},
    "invitation/<str:key>/": {"get": To.OPEN, "post": To.OPEN},
    "account/": LOOK,
    "account/address/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/address/<str:token>/": {"get": To.VIEWERS, "post": To.VIEWERS},  # only your own
    "account/password/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/confirm/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/confirm/code/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/confirm/passkey/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/passkeys/add/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/passkeys/<int:pk>/rename/": {"get": To.VIEWERS, "post": To.VIEWERS},  # only your own
    "account/passkeys/<int:pk>/remove/": {"get": To.VIEWERS, "post": To.VIEWERS},  # only your own
    "account/sso/link/": {"post": To.VIEWERS},
    "account/sso/unlink/": {"post": To.VIEWERS},
    "account/app/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/app/remove/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/recovery-codes/": LOOK,
    "account/recovery-codes/new/": {"get": To.VIEWERS, "post": To.VIEWERS},
    "account/recovery-codes/download/": LOOK,
    "account/sessions/end-others/": {"post": To.VIEWERS},
    "account/sessions/<int:pk>/end/": {"post": To.VIEWERS},  # only your own
    "tokens/": {"get": To.VIEWERS, "post": To.VIEWERS},  # only your own
    "tokens/<str:token_key>/revoke/": {"post": To.VIEWERS},
    "members/": {"get": To.ADMINS, "post": To.ADMINS},
    "members/<int:pk>/role/": {"post": To.ADMINS},
    "members/<int:pk>/deactivate/": {"get": To.ADMINS, "post": To.ADMINS},
    "members/<int:pk>/reactivate/": {"post": To.ADMINS},
    "members/<int:pk>/remove-factors/": {"post": To.ADMINS},
    "members/<int:pk>/reset-link/": {"post": To.ADMINS},
    "members/invitations/<int:pk>/renew/": {"post": To.ADMINS},
    "members/invitations/<int:pk>/revoke/": {"post": To.ADMINS},
    "api/docs/": LOOK,
    "api/docs/problems/": LOOK,
    "audit/": {"get": To.ADMINS},
    "audit/audit.csv": {"get": To.ADMINS},
}
API: dict[str, dict[str, To]] = {
    "api/v1/analyses/": {"get": To.VIEWERS, "post": To.MEMBERS},
    "api/v1/analyses/<int:pk>/": {
        "get": To.VIEWERS,
        "patch": To.MEMBERS,  # tags and note
        "delete": To.OWN,
    },
    "api/v1/analyses/<int:pk>/events/": LOOK,
    "api/v1/analyses/<int:pk>/trials/": LOOK,
    "api/v1/compare/": LOOK,
    "api/v1/savings/": LOOK,
    "api/v1/savings/changes/": LOOK,
    "api/v1/members/": {"get": To.ADMINS},
    "api/v1/lab/": {"get": To.VIEWERS, "patch": To.ADMINS},
    "api/v1/gpus/<path:gpu>/price/": {
        "get": To.VIEWERS,
        "put": To.ADMINS,
        "delete": To.ADMINS,
    },
    "api/v1/schema/": LOOK,
    "api/v1/<path:address>": {"get": To.VIEWERS} | dict.fromkeys(METHODS[1:], To.MEMBERS),
    "api/v1/analyses/<int:pk>/cancel/": {"post": To.OWN},
    "api/v1/analyses/<int:pk>/mention/": {"post": To.MEMBERS},
    "api/v1/analyses/<int:pk>/adopt/": {"post": To.OWN, "delete": To.OWN},
    "api/v1/analyses/import/": {"post": To.MEMBERS},
    "api/v1/inbox/": LOOK,
    "api/v1/inbox/read/": {"post": To.VIEWERS},
    "api/v1/training-jobs/": {"get": To.VIEWERS, "post": To.MEMBERS},
    "api/v1/trainings/": {"get": To.VIEWERS, "post": To.MEMBERS},
    "api/v1/predict/": {"post": To.MEMBERS},
    "api/v1/plan/": {"post": To.MEMBERS},
    "api/v1/lookups/<int:pk>/": {"get": To.OWN},
    "api/v1/nodes/": LOOK,
    "api/v1/models/": LOOK,
    "api/v1/model-types/": LOOK,
    "api/v1/gpus/": {"get": To.VIEWERS, "post": To.ADMINS},
    "api/v1/gpus/<str:gpu>/": {"get": To.VIEWERS, "put": To.ADMINS, "delete": To.ADMINS},
    "api/v1/health": {"get": To.OPEN},
    "models": LOOK,
    "analyze": {"post": To.MEMBERS},
}
DJANGO_ADMIN = "admin/"
"""All beneath it is for admins, by any method."""

QUERIES = {
    "gpus/price/": "?gpu=a10",
    "compare/": "?ids={analysis}",
    "compare/bars.svg": "?ids={analysis}",
    "compare/changed.csv": "?ids={analysis}",
    "compare/changed.md": "?ids={analysis}",
    "compare/table.csv": "?ids={analysis}",
    "compare/table.md": "?ids={analysis}",
    "history/selection/": "?action=compare&ids={analysis}",
    "history/tag/": "?ids={analysis}",
    "history/project/": "?ids={analysis}",
    "history/delete/": "?ids={analysis}",
    "api/v1/compare/": "?ids={analysis}",
    "api/v1/predict/": "?wait=0",
    "api/v1/plan/": "?wait=0",
}
BODIES = {
    "api/v1/analyses/": {"model": "bert", "gpu": "a10", "current_batch_size": 16},
    "api/v1/predict/": {"model": "bert", "gpu": "a10", "current_batch_size": 16},
    "api/v1/plan/": {"model": "bert", "gpu": "a10", "current_batch_size": 16},
}


def _routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, route)
        else:
            yield route


ROUTES = list(_routes(get_resolver().url_patterns))
OURS = [route for route in ROUTES if not route.startswith(DJANGO_ADMIN)]
WAYS_IN_AND_OUT = {"admin/login/", "admin/logout/"}
THEIRS = [
    route for route in ROUTES if route.startswith(DJANGO_ADMIN) and route not in WAYS_IN_AND_OUT
]


class Lab:
    """One user of every kind, and one of everything, owned by the owner."""

    def __init__(self) -> None:
        self.people: dict[str, User] = {
            "deactivated": make_user("dora"),
            "viewer": make_viewer("vera"),
            "other": make_user("otto"),
            "owner": make_user("olga"),
            "admin": make_user("ada", is_staff=True, is_superuser=True),
        }
        owner = self.people["owner"]
        analysis = make_analysis(owner, Status.SUCCEEDED, make_result())
        asked = predictable({"model": "bert", "gpu": "a10", "current_batch_size": 16})
        query = queries.submit(owner, QueryKind.PREDICT, asked, for_page=True)
        view = views.save_view(owner, "mine", "", is_shared=True)
        link, self.share_token = sharing.create_link(analysis, owner, 7)
        invitation, _ = invitations.invite(self.people["admin"], Role.MEMBER)
        self.pks = {
            "members/invitations/": invitation.pk,
            "members/": self.people["other"].pk,
            "gpus/": Node.objects.create(name="lab-1", heartbeat_at=timezone.now()).pk,
            "new/preview/": query.pk,
            "api/v1/lookups/": query.pk,
            "history/views/": view.pk,
            "share-links/": link.pk,
        }
        self.analysis = analysis
        self.second = make_analysis(owner, Status.SUCCEEDED, make_result(current=8))
        self.tokens = {name: ApiToken.objects.create(user=user)[1] for name, user in self._known()}
        self._sessions = {name: self._signed_in(user) for name, user in self._known()}
        User.objects.filter(username="dora").update(is_active=False)  # and is still signed in

    def _known(self) -> Iterator[tuple[str, User]]:
        yield from self.people.items()

    @staticmethod
    def _signed_in(user: User) -> SimpleCookie:
        client = Client()
        client.force_login(user)
        return client.cookies

    def by_session(self, name: str) -> Client:
        """A signed-in browser, independent of what other browsers have done."""
        client = Client()
        client.cookies.update(self._sessions.get(name, {}))
        return client

    def by_token(self, name: str) -> Client:
        token = self.tokens.get(name)
        return Client(headers={"Authorization": f"Token {token}"}) if token else Client()

    def address(self, route: str) -> str:
        pk = next((pk for start, pk in self.pks.items() if route.startswith(start)), None)
        filled = route.replace("<int:pk>", str(pk or self.analysis.pk))
        filled = filled.replace("<str:token>", self.share_token)
        filled = filled.replace("<path:gpu>", "a10").replace("<str:chart>", "weeks")
        query = QUERIES.get(route, "").format(analysis=self.analysis.pk)
        return "/" + re.sub(r"<[^>]*>|\^.*\$|\(.*\)\$?", "1", filled) + query


def _ask(client: Client, method: str, address: str, route: str) -> HttpResponseBase:
    """Send a request and roll back what it changed."""
    body = json.dumps(BODIES.get(route, {}))
    kind = {"content_type": "application/json", "data": body} if route in API else {}
    with transaction.atomic():
        response: HttpResponseBase = getattr(client, method)(
            address, **({} if method == "get" else kind)
        )
        transaction.set_rollback(True)
    return response


def _is_sent_to_sign_in(response: HttpResponseBase) -> bool:
    return response.status_code == 302 and "/login/?next=" in response["Location"]


def _is_refused(response: HttpResponseBase, name: str, route: str) -> bool:
    """Whether it is refused properly: strangers must sign in, others get a 403."""
    if response.status_code == 405:
        return True
    if name in ("anonymous", "deactivated"):
        return response.status_code == 401 if route in API else _is_sent_to_sign_in(response)
    return response.status_code in (403, 404)


def test_every_address_is_classified(tell: Callable[[str], None]) -> None:
    """When you add an address, say in this file who may use it."""
    known = PAGES.keys() | API.keys()

    assert set(OURS) - known == set(), "say in PAGES or API who may call these"
    assert known - set(OURS) == set(), "these are no more"
    asked = sum(len(_requests(route)) * (2 if route in API else 1) for route in OURS) + len(
        _ADMIN_METHODS
    ) * (len(PEOPLE) - 1) * len(THEIRS)
    tell(
        f"who may what: {len(ROUTES)} addresses x {len(PEOPLE)} kinds of people, those of the API "
        f"by session and by token: {asked:,} requests"
    )


_FOR_NOBODY = ("admin", "anonymous")
"""Who asks with a method that is for nobody: those who may do most and least."""
_ADMIN_METHODS = ("get", "post")
"""The methods of Django's admin site."""


def _requests(route: str) -> list[tuple[str, str]]:
    """Who asks for an address, and with which method."""
    allowed = (PAGES | API)[route]
    return [
        (name, method)
        for name, method in product(PEOPLE, METHODS)
        if allowed.get(method, To.NOBODY) is not To.NOBODY or name in _FOR_NOBODY
    ]


@pytest.mark.parametrize("route", OURS)
def test_each_address_only_serves_those_it_is_for(lab: Lab, route: str) -> None:
    for name, method in _requests(route):
        allowed = (PAGES | API)[route].get(method, To.NOBODY)
        clients = [lab.by_session(name)] + ([lab.by_token(name)] if route in API else [])
        for client in clients:
            response = _ask(client, method, lab.address(route), route)
            said = (name, method, response.status_code)

            if name in allowed.value:
                assert response.status_code in _ANSWERS, said
                assert not _is_sent_to_sign_in(response), said
            elif allowed is To.NOBODY and name == "admin":
                assert response.status_code == 405, said
            else:
                assert _is_refused(response, name, route), said


_ANSWERS = (200, 201, 202, 204, 302, 400, 404, 409, 503)
"""Statuses that refuse nobody: the set-up page answers 404, and /health 503 in a test."""


@pytest.mark.parametrize("route", THEIRS)
def test_the_admin_site_is_for_admins(lab: Lab, route: str) -> None:
    for name, method in product(PEOPLE[:-1], _ADMIN_METHODS):
        response = _ask(lab.by_session(name), method, lab.address(route), route)
        said = (name, method, response.status_code)

        assert response.status_code in (302, 403, 405), said
        if response.status_code == 302:
            assert "/login/" in response["Location"], said
