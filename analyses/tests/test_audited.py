"""The audit log has every change by members and admins with old and new values, and no more."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from analyses import services
from analyses.lab.settings import save_settings, set_price
from analyses.models import Analysis, Node, Status, TrainingRun
from analyses.pages.analysis import sharing
from analyses.tests.factories import make_analysis, make_result, make_user, make_viewer
from engine.core.errors import InvalidInput
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import ApiToken, AuditEntry

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture
def admin() -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def analysis(admin: User) -> Analysis:
    return make_analysis(admin, Status.SUCCEEDED, make_result())


def _log() -> list[tuple[str, ...]]:
    fields = ("actor_name", "action", "what", "before", "after")
    return list(AuditEntry.objects.order_by("id").values_list(*fields))


def test_a_changed_price_is_logged_with_old_and_new(admin: User) -> None:
    set_price(admin, "a10", "1.5")
    set_price(admin, "a10", 1.5)  # it has that price already
    set_price(admin, "a10", "")

    (set_, reset) = _log()
    assert set_[:3] == ("ada", "price_set", "price of NVIDIA A10")
    assert set_[4] == reset[3] == "1.5 USD per hour (lab)"
    assert set_[3] == reset[4]
    assert reset[4].endswith("(catalogue)")


def test_changed_lab_settings_are_logged_with_old_and_new(admin: User) -> None:
    for _ in range(2):  # the second changes nothing
        save_settings(
            admin,
            hours_per_run="5",
            runs_per_year="7",
            grid_co2e_grams_per_kwh="",
            sharing_allowed=False,
        )

    ((who, action, _, before, after),) = _log()
    assert (who, action) == ("ada", "lab_changed")
    assert "sharing allowed" in before
    assert after == "5 h per run, 7 runs per year, 481 g CO2e per kWh, sharing forbidden"


def test_refused_changes_are_not_logged(admin: User) -> None:
    with pytest.raises(InvalidInput):
        set_price(admin, "a10", "-1")
    with pytest.raises(InvalidInput):
        save_settings(
            admin,
            hours_per_run="x",
            runs_per_year="7",
            grid_co2e_grams_per_kwh="",
            sharing_allowed=True,
        )

    assert _log() == []


def test_adopting_and_undoing_are_logged(admin: User, analysis: Analysis) -> None:
    for _ in range(2):
        services.adopt(analysis, admin)
    for _ in range(2):
        services.undo_adoption(analysis, admin)

    assert [entry[1] for entry in _log()] == ["adopted", "adoption_taken_back"]
    assert _log()[0][2] == f"analysis {analysis.pk}: bert on a10"


def test_share_links_are_logged(admin: User, analysis: Analysis) -> None:
    link, token = sharing.create_link(analysis, admin, 7)
    for _ in range(2):
        sharing.revoke_link(link, admin)

    assert [entry[1] for entry in _log()] == ["share_link_made", "share_link_revoked"]
    assert _log()[0][4] == "for 7 days"
    assert not any(token in word for entry in _log() for word in entry)


@pytest.mark.parametrize("way", ["page", "api", "djangos"])
def test_a_deleted_analysis_is_logged_with_its_settings(
    client: Client, admin: User, analysis: Analysis, way: str
) -> None:
    client.force_login(admin)
    pk = analysis.pk
    if way == "page":
        client.post(f"/history/delete/?ids={pk}")
    elif way == "api":
        client.delete(f"/api/v1/analyses/{pk}/")
    else:
        client.post(f"/admin/analyses/analysis/{pk}/delete/", {"post": "yes"})

    assert not Analysis.objects.exists()
    assert _log() == [("ada", "analysis_deleted", f"analysis {pk}", "bert on a10 by ada", "")]


def test_deletions_by_cascade_in_the_admin_site_are_logged(
    client: Client, admin: User, analysis: Analysis
) -> None:
    node = Node.objects.create(name="node-7", gpu_name="NVIDIA A10", heartbeat_at=timezone.now())
    training = TrainingRun.objects.create(
        owner=admin,
        analysis=analysis,
        document_id=uuid4(),
        host="gpu-1",
        record={},
        batch_size=64,
        device_name="NVIDIA A10",
        recorded_at=timezone.now(),
    )
    client.force_login(admin)
    client.post(f"/admin/analyses/node/{node.pk}/delete/", {"post": "yes"})
    ticked = {"action": "delete_selected", "_selected_action": training.pk, "post": "yes"}
    client.post("/admin/analyses/trainingrun/", ticked)

    assert not Node.objects.exists()
    assert not TrainingRun.objects.exists()
    was = "training with batch 64 on NVIDIA A10 by ada"
    assert _log() == [
        ("ada", "node_deleted", "node-7", "NVIDIA A10", ""),
        ("ada", "training_deleted", f"training {training.pk} of analysis {analysis.pk}", was, ""),
    ]


def test_a_forbidden_deletion_is_not_logged(client: Client, analysis: Analysis) -> None:
    client.force_login(make_user("otto"))
    client.post(f"/history/delete/?ids={analysis.pk}")

    assert _log() == []


def test_changes_from_the_terminal_are_logged_without_a_member() -> None:
    call_command("addmember", "vera", "--viewer", "--generate")
    call_command("token", "vera", "--label", "nightly")

    joined, token = _log()
    assert joined == ("", "member_joined", "vera", "", "viewer")
    assert token[:2] == ("", "token_made")
    assert token[2].endswith("(nightly) of vera")
    assert token[4] == "write, never expires"
    assert hasattr(User.objects.get(), "viewer")


def test_a_token_revoked_in_the_admin_site_is_logged(client: Client, admin: User) -> None:
    token, _ = ApiToken.objects.create(user=admin, name="nightly")
    client.force_login(admin)
    client.post(f"/admin/accounts/apitoken/{token.pk}/delete/", {"post": "yes"})

    ((who, action, what, before, _),) = _log()
    assert (who, action, before) == ("ada", "token_revoked", "write")
    assert what == f"token {token.token_key}… (nightly) of ada"


def test_a_token_created_and_revoked_on_its_page_is_logged(client: Client, admin: User) -> None:
    client.force_login(admin)
    client.post("/tokens/", {"name": "nightly", "scope": "read", "days": "30"})
    key = ApiToken.objects.get().token_key
    for _ in range(2):
        client.post(f"/tokens/{key}/revoke/")

    made, revoked = _log()
    assert (*made[:2], made[4]) == ("ada", "token_made", "read, for 30 days")
    assert revoked[:3] == ("ada", "token_revoked", made[2])


def test_a_viewer_can_only_create_read_only_tokens(client: Client) -> None:
    client.force_login(make_viewer())
    for scope in ("write", "read"):
        client.post("/tokens/", {"name": "nightly", "scope": scope, "days": "30"})

    assert [entry[4] for entry in _log()] == ["read, for 30 days"]


def test_the_first_admin_is_logged() -> None:
    key = invitations.new_setup_link()
    assert key is not None
    link = invitations.find_setup_link(key)
    assert link is not None
    invitations.use_setup_link(link, "ada", "", "Correct-horse-9")

    assert _log() == [("ada", "member_joined", "ada", "set-up link", "admin")]
