"""Security headers in responses, and headers that a visitor forges."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.test.client import MULTIPART_CONTENT
from pytest_django import Settings

from analyses.models import Status
from analyses.pages.new.values import default_values
from analyses.tests.factories import make_analysis, make_result, make_user
from memorymark_site.accounts.tests.mailing import wait_for_mail
from memorymark_site.tests.attacks.serving import NAME, NAME_FIELD, PASSWORD, Site

ANSWERS = {
    "a page": ("/accounts/login/", 200),
    "a redirect": ("/history/", 302),
    "a file": ("/static/site.css", 200),
    "no such file": ("/static/none.css", 404),
    "no such page": ("/nowhere/", 404),
    "the admin site": ("/admin/", 302),
    "a key": ("/invitation/none/", 404),
    "the API, unknown to it": ("/api/v1/analyses/", 401),
    "the API, no such address": ("/api/v1/nowhere", 401),
    "health": ("/health", 503),
    "live": ("/live", 200),
    "metrics": ("/metrics", 401),
}


@pytest.mark.longer
@pytest.mark.parametrize("what", ANSWERS)
def test_every_response_has_the_security_headers(site: Site, what: str) -> None:
    """Against framing, sniffing, plain HTTP, caching and embedding, whatever the response."""
    path, status = ANSWERS[what]
    answer = site.ask("GET", path)
    headers = answer.headers
    assert answer.status == status
    policy = dict(
        part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["Strict-Transport-Security"] == "max-age=2592000"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] in ("same-origin", "no-referrer")
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Cache-Control"]
    if not (path.startswith("/static/") and status == 200):
        assert "private" in headers["Cache-Control"] or "no-store" in headers["Cache-Control"]
    if headers["Content-Type"].startswith("text/html") and status != 302:
        assert headers.get("X-Frame-Options", "DENY") == "DENY"


def test_every_cookie_is_only_for_https_and_this_site(site: Site) -> None:
    """Against scripts that read it, plain HTTP and requests from other sites."""
    page = site.ask("GET", "/accounts/login/")
    csrf = page.headers["Set-Cookie"].partition(";")[0]
    body = f"csrfmiddlewaretoken={csrf.partition('=')[2]}&{NAME_FIELD}=olga&password={PASSWORD}"
    signed_in = site.ask(
        "POST",
        "/accounts/login/",
        body.replace(" ", "+").encode(),
        {
            "Content-Type": "application/x-www-form-urlencoded",
            "Referer": f"https://{NAME}/",
            "Cookie": csrf,
        },
    )
    cookies = {
        text.partition("=")[0]: text
        for answer in (page, signed_in)
        for text in answer.headers.get_all("Set-Cookie") or []
    }
    assert {"csrftoken", "sessionid"} <= cookies.keys()
    for text in cookies.values():
        assert "; Secure" in text
        assert "; SameSite=Lax" in text
        assert "; Domain" not in text
    assert "; HttpOnly" in cookies["sessionid"]


def test_hsts_is_not_sent_through_a_proxy_without_https(site: Site) -> None:
    """Browsers ignore HSTS over plain HTTP, so it is not sent."""
    answer = site.ask("GET", "/live", headers={"X-Forwarded-Proto": "http"})
    assert answer.headers["Strict-Transport-Security"] is None


@pytest.mark.parametrize(
    "claimed",
    [
        {"Host": "evil.example"},
        {"Host": f"{NAME}.evil.example"},
        {"Host": f"{NAME}@evil.example"},
        {"Host": f"evil.example/{NAME}"},
        {"Host": ""},
    ],
)
def test_a_host_name_that_is_not_ours(site: Site, claimed: dict[str, str]) -> None:
    """It would appear in the password reset link that the site sends."""
    answer = site.ask("GET", "/accounts/login/", headers=claimed)
    assert answer.status == 400
    assert "evil.example/" not in answer.body
    assert answer.headers.get("Content-Security-Policy", "'none'")


@pytest.mark.parametrize(
    "claimed",
    [
        {"X-Forwarded-Host": "evil.example"},
        {"Forwarded": "host=evil.example;proto=http"},
        {"X-Host": "evil.example"},
        {"X-Forwarded-Server": "evil.example"},
        {"X-Original-URL": "/members/"},
        {"X-Rewrite-URL": "/members/"},
        {"X-Forwarded-Prefix": "//evil.example"},
        {"X-Script-Name": "//evil.example"},
    ],
)
def test_a_header_that_claims_another_host_or_address(site: Site, claimed: dict[str, str]) -> None:
    answer = site.ask("GET", "/history", headers=claimed)
    assert answer.headers["Location"] == "/history/"
    asked = site.ask("GET", "/accounts/login/", headers=claimed)
    assert asked.status == 200
    assert "evil" not in asked.body


def test_a_request_id_that_ends_the_header(site: Site) -> None:
    """It is returned in a header and logged: only letters, digits and . _ : - are allowed."""
    for sent in ("a\tb", "a b", "<script>", "a;b=c", "%0d%0aSet-Cookie:%20a=b", "é"):
        answer = site.raw(
            f"GET /live HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n".encode()
            + f"X-Request-ID: {sent}\r\n\r\n".encode("latin-1")
        )
        assert answer.headers["X-Request-ID"].isalnum()
        assert answer.headers["Set-Cookie"] is None


@pytest.fixture
def olga(client: Client, db: None) -> User:
    user = make_user("olga", is_staff=True, is_superuser=True)
    client.force_login(user)
    return user


@pytest.mark.longer
def test_members_pages_are_not_cached_by_others(client: Client, olga: User) -> None:
    """A proxy between the site and its members that caches what it may."""
    analysis = make_analysis(olga, Status.SUCCEEDED, make_result())
    for path in (
        "/", "/history/", f"/{analysis.pk}/", f"/{analysis.pk}/live/", "/savings/", "/account/",
        "/history/export.csv", "/history/export.json", "/savings/totals.csv", "/tokens/",
        f"/compare/?ids={analysis.pk}", f"/compare/bars.svg?ids={analysis.pk}", "/members/",
        "/audit/", "/audit/audit.csv", "/admin/", "/notifications/", "/api/v1/analyses/",
        f"/api/v1/analyses/{analysis.pk}/", "/api/v1/members/", "/api/docs/", "/nowhere/",
    ):  # fmt: skip
        said = client.get(path)["Cache-Control"]
        assert "private" in said or "no-store" in said, path
        assert "public" not in said, path
        # The API's answers have an ETag, by which a client may keep them for itself.
        assert "no-store" in said or path.startswith("/api/v1/"), path


def test_pages_with_a_key_are_never_cached(client: Client, olga: User) -> None:
    for path in ("/tokens/", "/notifications/", "/account/", "/accounts/login/"):
        assert "no-store" in client.get(path)["Cache-Control"], path


def test_a_members_file_name_cannot_end_a_header(client: Client, olga: User) -> None:
    """Names of downloads come from the site, never from user input."""
    make_analysis(olga, Status.SUCCEEDED, make_result(), model='x"; filename=evil.exe\r\nA: b')
    for path in ("/history/export.csv?q=%22%0d%0aA:%20b%22", "/history/export.json?q=%22;evil"):
        answer = client.get(path)
        assert "evil" not in answer["Content-Disposition"]
        assert "A" not in answer.headers


def test_an_unknown_host_page_says_what_an_admin_must_do(client: Client, db: None) -> None:
    response = client.get("/health", headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert "MEMORYMARK_HOSTS" in response.content.decode()


def test_the_policy_allows_our_own_files_and_what_plotly_needs(client: Client, db: None) -> None:
    header = client.get("/accounts/login/")["Content-Security-Policy"]
    policy = dict(part.strip().split(" ", 1) for part in header.split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "style-src-attr": "'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }


INSIDES = "insides-of-the-site"


@pytest.mark.parametrize("path", ["/new/", "/api/v1/analyses/"])
def test_error_pages_have_the_security_headers_too(
    client: Client, olga: User, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """403, 400 and 500 have their own handlers; the cause of an error is only logged."""

    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError(INSIDES)

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(olga)
    answers = {403: strict.post(path), 400: client.get(path, headers={"Host": "evil.example"})}
    monkeypatch.setattr("analyses.services.submit", break_down)
    client.raise_request_exception = False
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": "16", "batch_multiple": "1"}
    kind = "application/json" if path.startswith("/api/") else MULTIPART_CONTENT
    answers[500] = client.post(path, default_values() | fields, content_type=kind)

    for status, answer in answers.items():
        assert answer.status_code == status
        assert "default-src 'none'" in answer["Content-Security-Policy"]
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert "private" in answer["Cache-Control"]
        assert INSIDES not in answer.content.decode()
        assert "Traceback" not in answer.content.decode()


def test_a_port_of_the_attackers_in_a_password_reset_link(db: None, settings: Settings) -> None:
    """On a shared machine anyone can listen on another port of the site's host name."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.PUBLIC_URL = f"https://{NAME}"
    settings.ALLOWED_HOSTS = [NAME, "localhost"]
    make_user("ada", email="ada@lab.example")
    for host in (f"{NAME}:4444", "localhost:4444", "localhost"):
        Client().post("/accounts/forgotten/", {"email": "ada@lab.example"}, headers={"Host": host})
    wait_for_mail()
    assert len(mail.outbox) == 3
    for message in mail.outbox:
        assert f"https://{NAME}/accounts/reset/" in message.body
        assert ":4444" not in message.body
        assert "localhost" not in message.body


def test_a_port_of_the_attackers_in_shared_links(db: None, settings: Settings) -> None:
    """Nor the host name their creator used, which may lead others elsewhere."""
    settings.GIVEN_URL = f"https://{NAME}"
    settings.ALLOWED_HOSTS = [NAME, "localhost"]
    root = make_user("root", is_staff=True, is_superuser=True)
    analysis = make_analysis(root, Status.SUCCEEDED)
    admin = Client()
    admin.force_login(root)
    for host in (f"{NAME}:4444", "localhost:4444", "localhost"):
        for path, words in (
            ("/members/", {"role": "member"}),
            (f"/members/{make_user(host).pk}/reset-link/", {}),
            (f"/{analysis.pk}/share/", {"days": "7"}),
        ):
            shown = admin.post(path, words, headers={"Host": host}).content.decode()
            assert f'value="https://{NAME}/' in shown, path
            assert f"//{host}/" not in shown, path
