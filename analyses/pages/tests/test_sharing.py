"""Share links: who may create one, what it shows to whom, and every way it ends."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from analyses.models import Analysis, ShareLink, Status
from analyses.pages.analysis import sharing
from analyses.pages.history.labels import write_labels
from analyses.tests.factories import add_log, make_analysis, make_result, make_user

NEVER_MADE = "A" * 43
OWNER, NODE, HOST_LINE, NOTE, TAG = "grace", "gpu-node-7", "the log says", "a note on it", "thesis"


@pytest.fixture
def analysis(member: User) -> Analysis:
    """An analysis with everything that a link must not show."""
    analysis = make_analysis(
        member, Status.SUCCEEDED, make_result(certificate=["memorymark measure"]),
        node=NODE, environment={"node": NODE, "torch": "2.13.0"},
    )  # fmt: skip
    add_log(analysis, HOST_LINE)
    write_labels(analysis, [TAG], NOTE, member)
    return analysis


@pytest.fixture
def owner(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def _make(analysis: Analysis, days: int = 7) -> str:
    """The address of a new link."""
    _, token = sharing.create_link(analysis, analysis.owner, days)
    return reverse("analyses:shared", args=[token])


def _post(client: Client, analysis: Analysis, days: str = "7") -> str:
    response = client.post(f"/{analysis.pk}/share/", {"days": days}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


# Creating a link


@pytest.mark.parametrize("days", sharing.LIFETIMES_DAYS)
def test_the_owner_creates_a_link_and_sees_its_address_once(
    owner: Client, analysis: Analysis, days: int
) -> None:
    response = owner.post(f"/{analysis.pk}/share/", {"days": str(days)})
    found = re.search(r'value="http://testserver(/shared/([\w-]+)/)"', response.content.decode())
    assert found
    assert "no-store" in response["Cache-Control"]
    link = ShareLink.objects.get()
    assert link.digest == hashlib.sha256(found[2].encode()).hexdigest()
    assert len(found[2]) >= 43  # 256 bits, six per character
    left = link.expires_at - timezone.now()
    assert timedelta(days=days, minutes=-1) < left <= timedelta(days=days)
    assert Client().get(found[1]).status_code == 200
    assert found[2] not in owner.get(f"/{analysis.pk}/").content.decode()


@pytest.mark.parametrize("days", ["", "2", "always"])
def test_there_are_no_other_lifetimes(owner: Client, analysis: Analysis, days: str) -> None:
    assert "Choose when it expires" in _post(owner, analysis, days)
    assert not ShareLink.objects.exists()
    if days.isdigit():
        with pytest.raises(ValueError, match="no link of"):
            sharing.create_link(analysis, analysis.owner, int(days))


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FAILED])
def test_only_analyses_with_a_result_can_be_shared(
    owner: Client, member: User, status: Status
) -> None:
    analysis = make_analysis(member, status)
    assert "has no answer to share" in _post(owner, analysis)
    assert 'id="share"' not in owner.get(f"/{analysis.pk}/").content.decode()


def test_an_unreadable_result_cannot_be_shared(owner: Client, analysis: Analysis) -> None:
    address = _make(analysis)
    Analysis.objects.update(result={"of": "another version"})
    assert "has no answer to share" in _post(owner, analysis)
    assert owner.get(address).status_code == 404


def test_another_member_cannot_create_revoke_or_see_links(
    client: Client, analysis: Analysis
) -> None:
    link, _ = sharing.create_link(analysis, analysis.owner, 7)
    client.force_login(make_user("alan"))
    assert client.post(f"/{analysis.pk}/share/", {"days": "7"}).status_code == 403
    assert client.post(f"/share-links/{link.pk}/revoke/").status_code == 403
    assert ShareLink.objects.get().revoked_at is None
    assert 'id="share"' not in client.get(f"/{analysis.pk}/").content.decode()


def test_an_admin_can_create_and_revoke_any_link(client: Client, analysis: Analysis) -> None:
    client.force_login(make_user("root", is_staff=True))
    assert "Your new link" in _post(client, analysis)
    client.post(f"/share-links/{ShareLink.objects.get().pk}/revoke/")
    assert ShareLink.objects.get().revoked_at is not None


def test_the_page_only_lists_live_links(owner: Client, analysis: Analysis) -> None:
    live, _ = sharing.create_link(analysis, analysis.owner, 30)
    revoked, _ = sharing.create_link(analysis, analysis.owner, 30)
    sharing.revoke_link(revoked, revoked.analysis.owner)
    html = owner.get(f"/{analysis.pk}/").content.decode()
    assert f"/share-links/{live.pk}/revoke/" in html
    assert f"/share-links/{revoked.pk}/revoke/" not in html


def test_views_of_a_link_are_counted(owner: Client, analysis: Analysis) -> None:
    address = _make(analysis)
    for _ in range(2):
        Client().get(address)
    link = ShareLink.objects.get()
    assert link.times_seen == 2
    assert link.last_seen_at is not None
    assert "2 times" in owner.get(f"/{analysis.pk}/").content.decode()


# What a link shows


def _visitors(analysis: Analysis) -> dict[str, Client]:
    visitors = {"anonymous": Client(), "other member": Client(), "owner": Client()}
    visitors["other member"].force_login(make_user("alan"))
    visitors["owner"].force_login(analysis.owner)
    return visitors


def test_everyone_sees_the_same(analysis: Analysis) -> None:
    address = _make(analysis)
    pages = {
        name: client.get(address).content.decode() for name, client in _visitors(analysis).items()
    }
    assert pages["anonymous"] == pages["other member"] == pages["owner"]


def test_a_link_shows_the_answer(analysis: Analysis) -> None:
    html = Client().get(_make(analysis)).content.decode()
    for text in (
        make_result().decision, "Memory and speed by batch", "Potential savings per year",
        "Memory at the peak, by category", "Peak memory by phase", "Copy config",
        'id="timeline-figure"', "Largest tensors", "Trials", "badge-predicted", "badge-assumed",
        "Caveats", "Settings", "NVIDIA A10", "BERT base",
    ):  # fmt: skip
        assert text in html, text


def test_a_link_shows_nothing_else_of_the_lab(analysis: Analysis) -> None:
    html = Client().get(_make(analysis)).content.decode()
    for text in (
        OWNER, NODE, HOST_LINE, NOTE, TAG, "2.13.0", "<form", "csrf", "What if?", "adopted",
        f"#{analysis.pk}", f'"/{analysis.pk}/', "hx-get", "/history/", "/new/", "/compare/",
        "Sign out", "/shared/",
    ):  # fmt: skip
        assert text not in html, text
    links_out = re.findall(r'<a [^>]*href="([^"]+)"', html)
    assert set(links_out) == {"#main", "#decision", "#batches", "#proof", "#config"}


def test_assumptions_cannot_be_changed_on_a_shared_page(analysis: Analysis) -> None:
    address = _make(analysis)
    plain, tried = (Client().get(f"{address}{query}") for query in ("", "?runs_per_year=1"))
    assert plain.content == tried.content


def test_browsers_and_crawlers_do_not_keep_or_pass_on_the_address(analysis: Analysis) -> None:
    for address, status in ((_make(analysis), 200), (f"/shared/{NEVER_MADE}/", 404)):
        response = Client().get(address)
        assert response.status_code == status
        assert response["Referrer-Policy"] == "no-referrer"
        assert response["X-Robots-Tag"] == "noindex, nofollow"
        assert response["Cache-Control"] == "no-store"
        assert "default-src 'none'" in response["Content-Security-Policy"]
        assert not response.cookies


def test_a_shared_page_does_not_show_members_messages(owner: Client, analysis: Analysis) -> None:
    """A message is shown once, so a page that looks the same to all must not use it up."""
    link, _ = sharing.create_link(analysis, analysis.owner, 7)
    owner.post(f"/share-links/{link.pk}/revoke/")
    assert "Link revoked" not in owner.get(_make(analysis)).content.decode()
    assert "Link revoked" in owner.get("/").content.decode()


def test_a_shared_page_takes_the_same_few_queries_for_everyone(
    analysis: Analysis, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    address = _make(analysis)
    for client in _visitors(analysis).values():
        with django_assert_num_queries(4):  # the lab's setting, its GPUs, the link, its count
            client.get(address)


def test_a_shared_page_is_read_only(analysis: Analysis) -> None:
    address = _make(analysis)
    assert Client().head(address).status_code == 200
    for method in ("post", "put", "patch", "delete"):
        assert getattr(Client(), method)(address).status_code == 405


# How a link ends

ENDS: dict[str, Callable[[Analysis, ShareLink], object]] = {
    "expired": lambda _, link: ShareLink.objects.update(expires_at=timezone.now()),
    "revoked": lambda _, link: sharing.revoke_link(link, link.analysis.owner),
    "link deleted": lambda _, link: link.delete(),
    "analysis deleted": lambda analysis, _: analysis.delete(),
    "maker gone": lambda analysis, _: User.objects.filter(pk=analysis.owner_id).update(
        is_active=False
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_ended_link_looks_like_one_that_never_existed(analysis: Analysis, end: str) -> None:
    link, token = sharing.create_link(analysis, analysis.owner, 7)
    visitors = _visitors(analysis)
    ENDS[end](analysis, link)
    for client in visitors.values():
        response = client.get(reverse("analyses:shared", args=[token]))
        never = Client().get(reverse("analyses:shared", args=[NEVER_MADE]))
        assert response.status_code == 404
        assert response.content == never.content
        differing = response.headers.items() ^ never.headers.items()
        assert {name for name, _ in differing} <= {"X-Request-ID"}  # different for each request


def test_deleting_the_analysis_deletes_its_links(owner: Client, analysis: Analysis) -> None:
    _make(analysis)
    address = f"/history/delete/?ids={analysis.pk}"
    assert "1 share link." in owner.get(address).content.decode()
    owner.post(address)
    assert not ShareLink.objects.exists()


def test_revoking_shows_a_message(owner: Client, analysis: Analysis) -> None:
    link, _ = sharing.create_link(analysis, analysis.owner, 7)
    address = f"/share-links/{link.pk}/revoke/"
    assert "Link revoked" in owner.post(address, follow=True).content.decode()
    assert (
        "had already expired or been revoked" in owner.post(address, follow=True).content.decode()
    )
    assert owner.post("/share-links/4711/revoke/").status_code == 404
    assert owner.get(address).status_code == 405


@pytest.mark.parametrize("token", ["x", "ä" * 30, "%00", "A" * 5000, "' OR 1=1 --"])
def test_an_unknown_token_is_not_found(db: None, token: str) -> None:
    assert Client().get(f"/shared/{token}/").status_code == 404


# Switched off


def test_with_sharing_switched_off_nothing_is_shared(
    owner: Client, analysis: Analysis, settings: Settings
) -> None:
    link, token = sharing.create_link(analysis, analysis.owner, 7)
    settings.SHARE_LINKS = False
    html = owner.get(f"/{analysis.pk}/").content.decode()
    assert 'id="share"' not in html
    assert "#share" not in html
    assert owner.post(f"/{analysis.pk}/share/", {"days": "7"}).status_code == 404
    assert owner.post(f"/share-links/{link.pk}/revoke/").status_code == 404
    off = Client().get(reverse("analyses:shared", args=[token]))
    settings.SHARE_LINKS = True
    never = Client().get(reverse("analyses:shared", args=[NEVER_MADE]))
    assert (off.status_code, off.content) == (404, never.content)
    assert Client().get(reverse("analyses:shared", args=[token])).status_code == 200
