"""Another site makes a member's browser send a form here, with the session cookie."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import Settings

from analyses.models import Analysis
from analyses.tests.factories import make_user
from memorymark_site.accounts.models import ApiToken
from memorymark_site.tests.attacks.serving import credentials
from memorymark_site.tests.test_who_may_what import API, METHODS, PAGES, ROUTES, Lab, To

CHANGING = ("post", "put", "patch", "delete")
EVIL = {"Origin": "https://evil.example", "Referer": "https://evil.example/"}


def _as_browser(lab: Lab, name: str) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.cookies.update(lab.by_session(name).cookies)
    return client


def _changing(routes: dict[str, dict[str, To]]) -> list[tuple[str, str]]:
    return [
        (route, method)
        for route, methods in routes.items()
        for method in CHANGING
        if methods.get(method, To.NOBODY) is not To.NOBODY
    ]


@pytest.mark.parametrize(("route", "method"), _changing(PAGES | API))
def test_every_address_that_changes_something_needs_the_token(
    lab: Lab, route: str, method: str
) -> None:
    """As an admin, who may do everything, without a token and with the attacker's own."""
    victim = _as_browser(lab, "admin")
    assert victim.cookies
    address = lab.address(route)
    ways = {
        "form": "application/x-www-form-urlencoded",
        "file": "multipart/form-data; boundary=x",
        "text that is JSON": "text/plain",
        "JSON": "application/json",
    }
    for way, kind in ways.items():
        answer = getattr(victim, method)(address, "{}", content_type=kind, headers=EVIL)
        assert answer.status_code in (401, 403), (way, answer.status_code)
    for kept in ("csrfmiddlewaretoken=" + "a" * 32, "csrfmiddlewaretoken="):
        victim.cookies["csrftoken"] = "b" * 32
        answer = getattr(victim, method)(address, kept, content_type=ways["form"])
        assert answer.status_code in (401, 403, 415)  # the API does not read forms


def test_every_address_is_covered(tell: Callable[[str], None]) -> None:
    """These must be all methods of all addresses, as in the matrix of test_who_may_what."""
    walked = _changing(PAGES | API)
    assert len(walked) > 50
    assert {route for route, _ in walked} <= set(ROUTES)
    assert set(CHANGING) | {"get"} == set(METHODS)
    tell(f"forged forms: {len(walked)} addresses and methods x 6 forgeries")


@pytest.mark.parametrize("path", ["/admin/accounts/apitoken/", "/admin/logout/", "/admin/jsi18n/"])
def test_the_admin_site_needs_the_token_too(lab: Lab, path: str) -> None:
    victim = _as_browser(lab, "admin")
    answer = victim.post(path, {"action": "delete_selected"}, headers=EVIL)
    assert answer.status_code in (403, 405)


@pytest.mark.longer
def test_a_get_request_changes_nothing(lab: Lab) -> None:
    """An image on another page sends a GET, which must do nothing at any address."""
    victim = lab.by_session("admin")
    before = _state()
    for route, methods in (PAGES | API).items():
        if "post" in methods and route not in ("setup/<str:token>/",):
            victim.get(lab.address(route))
            victim.head(lab.address(route))
    assert _state() == before


def _state() -> tuple[object, ...]:
    return (
        list(Analysis.objects.order_by("pk").values()),
        list(User.objects.order_by("pk").values("pk", "is_active", "is_superuser", "password")),
        ApiToken.objects.count(),
        Session.objects.count(),
    )


def test_being_signed_in_as_the_attacker(db: None) -> None:
    """Login CSRF: the victim would work and upload configs in the attacker's account."""
    make_user("mallory")
    victim = Client(enforce_csrf_checks=True)
    words = credentials("mallory", "correct horse battery")
    assert victim.post("/accounts/login/", words, headers=EVIL).status_code == 403
    assert "sessionid" not in victim.cookies


def test_being_signed_out_by_a_link(client: Client, db: None) -> None:
    client.force_login(make_user("mallory"))
    assert client.get("/accounts/logout/").status_code == 405
    assert client.get("/account/").status_code == 200
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/account/").status_code == 302


def test_an_api_token_in_a_cookie_or_the_address_does_not_work(lab: Lab) -> None:
    """Only a header browsers never send on their own works without a CSRF token."""
    token = lab.tokens["owner"]
    body = json.dumps({"model": "bert", "gpu": "a10", "current_batch_size": 16})
    client = Client(enforce_csrf_checks=True)
    client.cookies["Authorization"] = f"Token {token}"
    client.cookies["token"] = token
    for path in (f"/api/v1/analyses/?token={token}", f"/api/v1/analyses/?access_token={token}"):
        answer = client.post(path, body, content_type="application/json")
        assert answer.status_code == 401


@pytest.mark.parametrize("origin", ["https://evil.lab.example", "http://lab.example", "null"])
def test_an_origin_that_looks_like_ours(db: None, settings: Settings, origin: str) -> None:
    """A valid token does not help if the browser says that the form is another site's."""
    settings.ALLOWED_HOSTS = ["lab.example"]
    client = Client(enforce_csrf_checks=True, headers={"Host": "lab.example"})
    page = client.get("/accounts/login/", secure=True)
    token = page.content.decode().partition('name="csrfmiddlewaretoken" value="')[2][:64]
    form = {"csrfmiddlewaretoken": token} | credentials("a", "b")
    fair = client.post(
        "/accounts/login/", form, secure=True, headers={"Origin": "https://lab.example"}
    )
    forged = client.post("/accounts/login/", form, secure=True, headers={"Origin": origin})
    assert fair.status_code == 200
    assert forged.status_code == 403
