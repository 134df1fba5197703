"""Open redirects: links to this site that lead to another, such as a fake sign-in page."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from django.test import Client

from analyses.tests.factories import make_user
from memorymark_site.tests.attacks.serving import Site, credentials

PASSWORD = "correct horse battery"  # noqa: S105  # of the accounts that tests make
ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "////evil.example",
    "/\\evil.example/",
    "\\\\evil.example/",
    "https:evil.example",
    "https:/evil.example",
    "http:///evil.example",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "\thttps://evil.example/",
    "/\t/evil.example/",
    "\x00//evil.example/",
    "https://testserver@evil.example/",
    "https://testserver.evil.example/",
    "ftp://testserver/",
    "//testserver:evil@evil.example/",
    "/%09/evil.example",
]


def _leads_away(location: str) -> bool:
    """Whether browsers would leave the site: they treat \\ as / and drop tabs and line ends."""
    seen = location.translate({9: None, 10: None, 13: None, 0: None}).replace("\\", "/").strip()
    return seen.startswith("//") or not seen.startswith("/")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_next_of_the_sign_in_page(client: Client, db: None, target: str) -> None:
    make_user("ada")
    words = credentials("ada", PASSWORD) | {"next": target}
    for answer in (
        client.post(f"/accounts/login/?next={quote(target)}", words),
        client.get(f"/accounts/login/?next={quote(target)}"),  # signed in: redirects immediately
        Client().post("/accounts/login/", words),
    ):
        assert answer.status_code == 302
        assert not _leads_away(answer["Location"]), answer["Location"]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_next_through_the_admin_site(client: Client, db: None, target: str) -> None:
    """Its sign-in address passes ``next`` on to ours, which checks it."""
    answer = client.get(f"/admin/login/?next={quote(target)}")
    assert answer["Location"].startswith("/accounts/login/?next=")
    make_user("ada")
    there = client.post(answer["Location"], credentials("ada", PASSWORD))
    assert not _leads_away(there["Location"])


@pytest.mark.parametrize("target", [*ELSEWHERE, "http://["])
def test_the_current_page_according_to_htmx(client: Client, db: None, target: str) -> None:
    answer = client.get(
        "/7/live/",
        headers={"HX-Request": "true", "HX-Current-URL": target.translate({0: None, 9: None})},
    )
    path, _, way_back = answer["HX-Redirect"].partition("?next=")
    assert path == "/accounts/login/"
    assert not _leads_away(unquote(way_back))


@pytest.mark.parametrize("header", ["Referer", "HX-Current-URL", "Origin"])
def test_the_way_back_of_a_member(client: Client, db: None, header: str) -> None:
    """Views that redirect back to a page only redirect to our own."""
    client.force_login(make_user("ada"))
    for path in ("/account/sessions/end-others/", "/notifications/", "/history/views/", "/tokens/"):
        answer = client.post(
            path, {"next": "//evil.example/"}, headers={header: "https://evil.example/"}
        )
        assert not _leads_away(answer.get("Location", "/"))
        assert "evil.example" not in answer.get("HX-Redirect", "")


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "//evil.example/%2e%2e", "/%2fevil.example", "/\\evil.example", "/%5cevil"],
)
def test_an_address_with_a_missing_slash(site: Site, path: str) -> None:
    """APPEND_SLASH on another site's name would redirect to it."""
    for suffix in ("", "/", "/history", "/api/v1/analyses"):
        answer = site.ask("GET", path + suffix)
        assert not _leads_away(answer.headers.get("Location", "/"))
