from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

OPEN = {
    "accounts/login/", "accounts/login/code/", "accounts/login/passkey/", "setup/<str:token>/",
    "accounts/sso/", "accounts/sso/callback/", "shared/<str:token>/",
    "health", "api/v1/health", "metrics", "live", "ready",
    "admin/login/", "accounts/forgotten/", "accounts/reset/<uidb64>/<token>/",
    "invitation/<str:key>/", "invitation/<str:key>/sso/",
}  # fmt: skip
"""Addresses that answer without signing in; no other may."""

_VALUES = {
    "<int:pk>": "1",
    "<slug:gpu>": "a10",
    "<path:object_id>": "1",
    "<int:content_type_id>": "1",
    "<str:token_key>": "mm_1",
    "<path:address>": "nowhere/",
}


def _routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, route)
        else:
            yield route


def _address(route: str) -> str:
    for name, value in _VALUES.items():
        route = route.replace(name, value)
    return "/" + route


ROUTES = [route for route in _routes(get_resolver().url_patterns) if route not in OPEN]


def test_the_test_finds_the_pages() -> None:
    assert {"", "api/v1/analyses/", "admin/", "accounts/logout/"} <= set(ROUTES)


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("route", ROUTES)
def test_each_page_requires_a_login(client: Client, db: None, route: str, method: str) -> None:
    response = getattr(client, method)(_address(route))

    if response.status_code == 302:
        assert "/login/?next=" in response["Location"]
    else:
        assert route.startswith("api/") or route in {"models", "analyze"}  # the first service's
        assert response.status_code == 401


@pytest.mark.parametrize("address", ["/accounts/login/", "/health", "/live", "/ready"])
def test_public_pages_need_no_login(client: Client, db: None, address: str) -> None:
    assert client.get(address).status_code in (200, 503)


@pytest.mark.django_db
def test_the_address_of_a_button_is_explained_to_who_opens_it(
    client: Client, django_user_model: type[User]
) -> None:
    client.force_login(django_user_model.objects.create_user("ada"))
    answer = client.get("/account/sessions/end-others/")
    assert answer.status_code == 405
    assert answer["Allow"] == "POST"
    assert "Go back and select the button again." in answer.content.decode()
    plain = client.get("/account/sessions/end-others/", headers={"Accept": "application/json"})
    assert (plain.status_code, plain.content) == (405, b"")
