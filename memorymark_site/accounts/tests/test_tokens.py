from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from analyses.api import urls as api_urls
from analyses.tests.factories import make_user
from memorymark_site.accounts import tokens
from memorymark_site.accounts.forms import TokenForm
from memorymark_site.accounts.models import ApiToken, Scope

pytestmark = pytest.mark.database

URL = "/tokens/"
ANALYSES = "/api/v1/analyses/"
GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


@pytest.fixture
def member(db: None) -> User:
    return make_user("grace")


@pytest.fixture
def browser(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def _make(browser: Client, **fields: str) -> str:
    """The token that the page shows."""
    given = {"name": "nightly", "scope": "read", "days": "30"} | fields
    shown = browser.post(URL, given).content.decode()
    found = re.search(r'id="token"[^>]* value="(mm_[0-9a-f]+)"', shown)
    assert found, shown
    return found[1]


def _as_script(token: str) -> Client:
    return Client(headers={"Authorization": f"Token {token}"})


def test_a_token_from_the_page_authenticates_a_script(browser: Client, member: User) -> None:
    token = _make(browser)

    assert _as_script(token).get(ANALYSES).status_code == 200
    stored = ApiToken.objects.get()
    assert (stored.user, stored.name, stored.scope) == (member, "nightly", Scope.READ)
    ends = timezone.now() + timedelta(days=30)
    assert abs(stored.expiry - ends) < timedelta(minutes=5)


def test_a_token_is_shown_once_and_only_its_digest_is_stored(browser: Client) -> None:
    token = _make(browser)
    again = browser.get(URL)

    assert token not in again.content.decode()
    assert token[:15] in again.content.decode()
    assert "no-store" in again["Cache-Control"]
    stored = ApiToken.objects.get()
    assert token not in (stored.digest, stored.token_key)


def test_a_form_sent_twice_creates_one_token(browser: Client) -> None:
    _make(browser)
    again = browser.post(URL, {"name": "nightly", "scope": "read", "days": "30"})

    assert "Choose another" in again.content.decode()
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", ""), ("name", "x" * 101), ("scope", "admin"), ("days", "0"), ("days", "99999")],
)
def test_an_invalid_field_creates_no_token(browser: Client, field: str, value: str) -> None:
    given = {"name": "nightly", "scope": "read", "days": "30"} | {field: value}
    shown = browser.post(URL, given).content.decode()

    assert "field-error" in shown
    assert not ApiToken.objects.exists()


def test_the_page_creates_no_token_without_an_expiry() -> None:
    assert max(TokenForm.DAYS) == 365


def test_the_number_of_tokens_is_limited(browser: Client, member: User) -> None:
    for number in range(tokens.MAX_TOKENS):
        tokens.create(member, f"token {number}", Scope.READ, 7)
    shown = browser.post(URL, {"name": "one more", "scope": "read", "days": "7"}).content.decode()

    assert "Revoke one first" in shown
    assert ApiToken.objects.count() == tokens.MAX_TOKENS


def test_a_revoked_token_does_not_work(browser: Client) -> None:
    token = _make(browser)
    answer = browser.post(f"{URL}{token[:15]}/revoke/", follow=True)

    assert "is revoked" in answer.content.decode()
    assert _as_script(token).get(ANALYSES).status_code == 401


def test_another_members_token_cannot_be_seen_or_revoked(client: Client, member: User) -> None:
    stored, token = tokens.create(member, "of grace", Scope.READ, 7)
    client.force_login(make_user("eve", is_staff=True, is_superuser=True))

    assert "of grace" not in client.get(URL).content.decode()
    client.post(f"{URL}{stored.token_key}/revoke/")
    assert _as_script(token).get(ANALYSES).status_code == 200


def test_the_admin_site_can_revoke_tokens_but_not_change_them(client: Client, member: User) -> None:
    stored, token = tokens.create(member, "of grace", Scope.READ, 7)
    client.force_login(make_user("eve", is_staff=True, is_superuser=True))
    listed = client.get("/admin/accounts/apitoken/").content.decode()
    address = f"/admin/accounts/apitoken/{stored.pk}/change/"

    assert stored.token_key in listed
    assert token not in listed + client.get(address).content.decode()
    assert client.post(address, {"scope": "write"}).status_code == 403
    client.post(address.replace("change", "delete"), {"post": "yes"})
    assert _as_script(token).get(ANALYSES).status_code == 401


def test_a_read_only_token_cannot_change_anything(member: User) -> None:
    script = _as_script(tokens.create(member, "reader", Scope.READ, 7)[1])
    refused = script.post(ANALYSES, GOOD, content_type="application/json")

    assert script.get(ANALYSES).status_code == 200
    assert refused.status_code == 403
    assert "read-only" in refused.json()["detail"]
    assert not member.analyses.exists()


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_no_api_address_lets_a_read_only_token_change_anything(member: User, method: str) -> None:
    script = _as_script(tokens.create(member, "reader", Scope.READ, 7)[1])
    for pattern in api_urls.urlpatterns:
        if not getattr(getattr(pattern.callback, "cls", None), "only_asks", False):
            address = "/api/v1/" + str(pattern.pattern).replace("<int:pk>", "1")
            assert getattr(script, method)(address).status_code == 403, address


def test_a_write_token_can_change_things(member: User) -> None:
    script = _as_script(tokens.create(member, "writer", Scope.WRITE, 7)[1])

    assert script.post(ANALYSES, GOOD, content_type="application/json").status_code == 201


def test_the_last_use_is_recorded_once_a_minute(member: User) -> None:
    stored, token = tokens.create(member, "reader", Scope.READ, 7)
    script = _as_script(token)
    assert ApiToken.objects.filter(last_used_at=None).exists()
    script.get("/api/v1/models/")
    stored.refresh_from_db()
    first = stored.last_used_at
    assert first is not None

    with CaptureQueriesContext(connection) as queries:
        script.get("/api/v1/models/")
    assert not [query for query in queries if query["sql"].startswith("UPDATE")]
    stored.refresh_from_db()
    assert stored.last_used_at == first

    ApiToken.objects.update(last_used_at=first - tokens.NOTE_USE_EVERY)
    script.get("/api/v1/models/")
    stored.refresh_from_db()
    assert stored.last_used_at >= first


def test_only_one_of_two_concurrent_uses_is_written(member: User) -> None:
    stored, _ = tokens.create(member, "reader", Scope.READ, 7)
    tokens.note_use(stored)
    noted = ApiToken.objects.get().last_used_at
    tokens.note_use(stored)  # it has read the row before the other wrote

    assert ApiToken.objects.get().last_used_at == noted


def test_an_expired_token_is_marked_on_the_page(browser: Client, member: User) -> None:
    tokens.create(member, "old", Scope.READ, 7)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))

    assert "ended" in browser.get(URL).content.decode()


def test_a_read_only_token_can_request_a_prediction(member: User) -> None:
    script = _as_script(tokens.create(member, "reader", Scope.READ, 7)[1])
    asked = script.post("/api/v1/predict/?wait=0", GOOD, content_type="application/json")

    assert asked.status_code == 202
