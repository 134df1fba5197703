"""Members read each other's analyses; each changes their own, and viewers none."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from analyses.pages.history import views
from memorymark_site.tests.test_who_may_what import Lab, To

READ_BY_ALL = (
    "/history/?q=bert",
    "/history/export.csv",
    "/history/export.json",
    "/compare/?ids={analysis},{second}",
    "/savings/",
    "/savings/analyses.csv",
    "/{analysis}/",
    "/api/v1/analyses/",
    "/api/v1/analyses/{analysis}/",
)


@pytest.mark.parametrize("address", READ_BY_ALL)
def test_everyone_in_the_lab_can_read_others_analyses(lab: Lab, address: str) -> None:
    numbers = {"analysis": lab.analysis.pk, "second": lab.second.pk}
    for name in To.VIEWERS.value:
        response = lab.by_session(name).get(address.format(**numbers))
        shown = b"".join(response)
        assert b"olga" in shown or f'href="/{lab.analysis.pk}/"'.encode() in shown, name


def test_a_private_view_belongs_to_its_owner(lab: Lab) -> None:
    view = views.save_view(lab.people["owner"], "secret plans", "", is_shared=False)
    for name in ("viewer", "other", "admin"):
        client = lab.by_session(name)

        assert b"secret plans" not in client.get("/history/").content
        refused = client.post(f"/history/views/{view.pk}/delete/").status_code
        assert refused in (403, 404)
    assert b"secret plans" in lab.by_session("owner").get("/history/").content


def test_deleting_several_only_deletes_your_own(lab: Lab) -> None:
    for name, is_left in (("other", True), ("admin", False)):
        lab.by_session(name).post(f"/history/delete/?ids={lab.analysis.pk}")
        assert type(lab.analysis).objects.filter(pk=lab.analysis.pk).exists() is is_left


def test_a_share_link_ends_with_its_creators_account(lab: Lab) -> None:
    address = f"/shared/{lab.share_token}/"
    assert lab.by_session("anonymous").get(address).status_code == 200
    User.objects.filter(username="olga").update(is_active=False)

    assert lab.by_session("anonymous").get(address).status_code == 404


CHANGING = re.compile(rb'<form[^>]*method="post"[^>]*action="([^"]+)"')


def test_a_viewer_is_not_offered_forbidden_actions(lab: Lab) -> None:
    viewer = lab.by_session("viewer")
    for address in ("/", "/history/", f"/{lab.analysis.pk}/", "/savings/", "/gpus/"):
        page = viewer.get(address).content

        assert set(CHANGING.findall(page)) <= {b"/accounts/logout/"}, address
        assert b"/new/" not in page, address
        assert b"/lab/" not in page, address


def test_a_viewer_is_told_why_access_is_denied(lab: Lab) -> None:
    page = lab.by_session("viewer").get("/new/").content.decode()
    answer = lab.by_token("viewer").post("/api/v1/analyses/").json()

    assert "Your account is read-only" in page
    assert "Your account is read-only" in answer["detail"]
