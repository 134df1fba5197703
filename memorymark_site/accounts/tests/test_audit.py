from __future__ import annotations

import csv
import io
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from analyses.tests.factories import make_user
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.pages.audit import PAGE_SIZE

pytestmark = pytest.mark.database

AUDIT = "/audit/"


@pytest.fixture
def admin(db: None) -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def page(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


def _shown(page: Client, **filters: str) -> str:
    """The table alone, as htmx requests it."""
    headers = {"HX-Request": "true", "HX-Target": "entries"}
    return page.get(AUDIT, filters, headers=headers).content.decode()


def test_an_entry_has_member_action_target_and_both_values(page: Client, admin: User) -> None:
    audit.note(admin, Action.PRICE_SET, "price of A10", before=1.0, after=1.5)
    audit.note(None, Action.MEMBER_JOINED, "grace")
    shown = page.get(AUDIT).content.decode()

    for word in ("ada", "Price set", "price of A10", "1.0", "1.5", "the server", "Member joined"):
        assert word in shown, word


def test_an_entry_is_never_changed_or_deleted(admin: User) -> None:
    audit.note(admin, Action.PRICE_SET, "price of A10")
    entry = AuditEntry.objects.get()

    for change in (
        entry.save,
        entry.delete,
        lambda: AuditEntry.objects.update(what="nothing"),
        lambda: AuditEntry.objects.all().delete(),
    ):
        with pytest.raises(TypeError):
            change()
    assert AuditEntry.objects.get().what == "price of A10"


def test_an_entry_outlives_the_account(admin: User) -> None:
    audit.note(admin, Action.PRICE_SET, "price of A10")
    admin.delete()

    assert AuditEntry.objects.get().actor_name == "ada"


def test_an_entry_is_rolled_back_with_its_change(admin: User) -> None:
    with transaction.atomic():
        audit.note(admin, Action.PRICE_SET, "price of A10")
        transaction.set_rollback(True)

    assert not AuditEntry.objects.exists()


def test_logging_outside_a_transaction_is_refused(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "connection", SimpleNamespace(in_atomic_block=False))

    with pytest.raises(RuntimeError, match="outside the transaction"):
        audit.note(admin, Action.PRICE_SET, "price of A10")


def test_long_values_are_truncated(admin: User) -> None:
    audit.note(admin, Action.PRICE_SET, "x" * 1000, before="y" * 1000, after="z" * 1000)

    assert len(AuditEntry.objects.get().what) == AuditEntry.MAX_LENGTH


def test_filters_find_by_member_action_and_time(page: Client, admin: User) -> None:
    audit.note(admin, Action.PRICE_SET, "price of A10")
    audit.note(make_user("bob"), Action.ROLE_CHANGED, "grace", before="member", after="viewer")

    assert "A10" in _shown(page, who="ADA")
    assert "grace" not in _shown(page, who="ada")
    assert "A10" not in _shown(page, action="role_changed")
    assert "grace" in _shown(page, q="VIEW")
    assert "grace" in _shown(page, since="2020-01-01")
    assert "No matching entries" in _shown(page, since="2999-01-01")


@pytest.mark.parametrize(
    "wrong", [{"since": "yesterday"}, {"action": "x"}, {"before": "0"}, {"before": "9" * 30}]
)
def test_an_invalid_filter_shows_nothing_and_breaks_nothing(
    page: Client, admin: User, wrong: dict[str, str]
) -> None:
    audit.note(admin, Action.PRICE_SET, "price of A10")
    response = page.get(AUDIT, wrong)

    assert response.status_code == 200
    assert "price of A10" not in response.content.decode()
    assert page.get(f"{AUDIT}audit.csv", wrong).status_code == 400


def test_pages_continue_where_the_last_one_ended(page: Client, admin: User) -> None:
    for number in range(PAGE_SIZE + 3):
        audit.note(admin, Action.PRICE_SET, f"price number {number:03}")
    first = page.get(AUDIT, {"q": "number"}).content.decode()
    audit.note(admin, Action.PRICE_SET, "price number 999")  # a new entry on top in the meantime
    oldest = AuditEntry.objects.order_by("id")[3].pk
    second = page.get(AUDIT, {"q": "number", "before": str(oldest)}).content.decode()

    assert f"before={oldest}" in first
    assert "q=number" in first
    assert "number 002" not in first
    assert all(f"number 00{number}" in second for number in (0, 1, 2))
    assert "number 003" not in second
    assert "Older" not in second


def test_the_csv_has_all_pages_and_no_formulas(page: Client, admin: User) -> None:
    for number in range(PAGE_SIZE + 3):
        audit.note(admin, Action.PRICE_SET, f"=HYPERLINK({number})")
    audit.note(admin, Action.ADOPTED, "analysis 1")
    response = page.get(f"{AUDIT}audit.csv", {"action": "price_set"})
    rows = list(csv.DictReader(io.StringIO(response.getvalue().decode())))

    assert len(rows) == PAGE_SIZE + 3
    assert rows[0]["who"] == "ada"
    assert rows[0]["what"].startswith("'=")
