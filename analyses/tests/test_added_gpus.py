"""An admin adds a GPU by its data sheet: it is offered, predicted, changed and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses import queries, services
from analyses.gpus import added_gpus
from analyses.jobs import lease
from analyses.jobs.engine_session import asked_of
from analyses.jobs.plans import plan_request
from analyses.jobs.request_columns import request_hash
from analyses.lab import settings as lab
from analyses.models import AddedGpu, Analysis, Job, QueryKind
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.gpus.data_sheet import ADDED_FAMILY
from engine.gpus.tests.test_data_sheet import L20
from engine.interface.request import AnalysisRequest
from memorymark_site.accounts.models import AuditEntry

pytestmark = pytest.mark.django_db

ASKED: dict[str, object] = {"model": "bert", "gpu": "l20"}


@pytest.fixture
def pages(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


@pytest.fixture
def l20(admin: User) -> Iterator[AddedGpu]:
    """An L20 on offer, outside of requests too."""
    with added_gpus.offered():
        yield added_gpus.add(admin, L20)


def html(pages: Client, address: str) -> str:
    response = pages.get(address)
    assert response.status_code == 200
    return response.content.decode()


def asked(analysis: Analysis) -> dict[str, Any]:
    held = lease.claim(Job.objects.get(analysis=analysis).pk, "node")
    assert held is not None
    return dict(asked_of(held).request)


class TestOnThePages:
    def test_an_admin_adds_one_in_one_form(self, pages: Client) -> None:
        assert "Peak rates, dense" in html(pages, "/gpus/add/")
        added = pages.post("/gpus/add/", L20, follow=True).content.decode()
        assert "Added NVIDIA L20" in added
        assert ADDED_FAMILY in added
        assert "added by root on 20" in added
        assert 'value="l20"' in html(pages, "/new/")

    def test_what_is_wrong_is_said_at_the_field_and_nothing_stored(self, pages: Client) -> None:
        answer = pages.post("/gpus/add/", L20 | {"fp16_tflops": "999"}).content.decode()
        assert "rate with sparsity" in answer
        assert 'value="999"' in answer
        assert not AddedGpu.objects.exists()

    def test_it_is_changed_and_removed(self, pages: Client, l20: AddedGpu) -> None:
        assert 'value="119.5"' in html(pages, "/gpus/l20/edit/")
        pages.post("/gpus/l20/edit/", L20 | {"power_watts": "300"})
        assert "changed by root" in html(pages, "/gpus/")
        pages.post("/gpus/l20/remove/", follow=True)  # which says so, once
        assert "NVIDIA L20" not in html(pages, "/gpus/")
        assert pages.get("/gpus/l20/edit/").status_code == 404
        actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
        assert actions == ["gpu_added", "gpu_changed", "gpu_removed"]

    @pytest.mark.parametrize("address", ["/gpus/add/", "/gpus/l20/edit/", "/gpus/l20/remove/"])
    def test_only_an_admin_may(
        self, client: Client, member: User, l20: AddedGpu, address: str
    ) -> None:
        client.force_login(member)
        assert client.post(address, L20).status_code == 403
        page = client.get("/gpus/").content.decode()
        assert "NVIDIA L20" in page
        assert "Add a GPU" not in page
        assert "/gpus/l20/edit/" not in page

    def test_it_is_unfolded_and_the_built_in_ones_are_not(
        self, pages: Client, l20: AddedGpu
    ) -> None:
        fold = r'<details class="family"( open)?>\s*<summary id="[^"]*">([^<]+)'
        folds = re.findall(fold, html(pages, "/gpus/"))
        assert [name.strip() for is_open, name in folds if is_open] == [ADDED_FAMILY]
        assert len(folds) > 1

    def test_a_built_in_one_cannot_be_changed(self, pages: Client) -> None:
        assert pages.get("/gpus/a10/edit/").status_code == 404

    def test_it_has_a_price_of_the_lab_like_any_other(
        self, pages: Client, admin: User, l20: AddedGpu
    ) -> None:
        assert lab.price_of("l20").usd is None
        lab.set_price(admin, "l20", 0.51)
        assert lab.price_of("l20").usd == 0.51
        assert "$0.51" in html(pages, "/gpus/")


class TestInTheApi:
    def test_it_is_added_read_changed_and_removed(self, api: APIClient, admin: User) -> None:
        api.force_authenticate(admin)
        made = api.post("/api/v1/gpus/", L20 | {"price_per_hour_usd": 0.5}, format="json")
        assert made.status_code == 201
        assert made.data["name"] == "l20"
        assert made.data["added"]
        assert made.data["sources"]["fp16_flops"].startswith("assumed: added by root on 20")
        listed = {one["name"]: one for one in api.get("/api/v1/gpus/").data["results"]}
        assert listed["l20"]["price_per_hour_usd"] == 0.5
        assert not listed["a10"]["added"]
        assert listed["h20"]["price_per_hour_usd"] is None
        changed = api.put("/api/v1/gpus/l20/", L20 | {"power_watts": 300}, format="json")
        assert changed.data["power_watts"] == 300
        assert api.get("/api/v1/gpus/l20/").data["power_watts"] == 300
        assert api.delete("/api/v1/gpus/l20/").status_code == 204
        assert "l20" not in {one["name"] for one in api.get("/api/v1/gpus/").data["results"]}

    def test_what_is_wrong_is_said_by_field(self, api: APIClient, admin: User) -> None:
        api.force_authenticate(admin)
        refused = api.post("/api/v1/gpus/", L20 | {"bandwidth_gb_per_second": 0.8}, format="json")
        assert refused.status_code == 400
        assert "GB/s" in str(refused.data)

    def test_only_an_admin_may_and_only_what_was_added(self, api: APIClient, admin: User) -> None:
        assert api.post("/api/v1/gpus/", L20, format="json").status_code == 403
        assert api.delete("/api/v1/gpus/a10/").status_code == 403
        assert api.get("/api/v1/gpus/a10/").status_code == 200
        api.force_authenticate(admin)
        assert api.delete("/api/v1/gpus/a10/").status_code == 404
        assert api.put("/api/v1/gpus/nothing/", L20, format="json").status_code == 404
        assert api.get("/api/v1/gpus/nothing/").status_code == 404

    def test_an_analysis_of_it_is_submitted(self, api: APIClient, l20: AddedGpu) -> None:
        made = api.post("/api/v1/analyses/", ASKED, format="json")
        assert made.status_code == 201
        assert made.data["gpu"] == "l20"


class TestForWorkers:
    def test_the_engine_of_an_analysis_is_told_of_it(self, member: User, l20: AddedGpu) -> None:
        order = asked(services.submit(member, ASKED))
        assert [gpu["name"] for gpu in order["gpus"]] == ["l20"]
        assert order["gpus"][0]["fp16_flops"] == 119.5e12

    def test_one_removed_meanwhile_is_still_predicted(
        self, member: User, admin: User, l20: AddedGpu
    ) -> None:
        waiting = services.submit(member, ASKED)
        added_gpus.remove(admin, l20)
        assert [gpu["name"] for gpu in asked(waiting)["gpus"]] == ["l20"]
        assert asked(services.submit(member, {"model": "bert", "gpu": "a10"}))["gpus"] == []

    def test_a_result_is_not_reused_after_its_gpu_changed(self, admin: User, l20: AddedGpu) -> None:
        request = AnalysisRequest.parse(ASKED)
        before, plan = request_hash(request), request_hash(request, QueryKind.PLAN)
        of_another = AnalysisRequest.parse({"model": "bert", "gpu": "a10"})
        other, compared = request_hash(of_another), request_hash(of_another, QueryKind.PLAN)
        added_gpus.change(admin, l20, L20 | {"memory_gb": "40"})
        assert request_hash(request) != before
        assert request_hash(request, QueryKind.PLAN) != plan
        assert request_hash(of_another) == other
        assert request_hash(of_another, QueryKind.PLAN) != compared  # it compares all GPUs


class TestRemoved:
    def test_its_analyses_stay_readable(
        self, pages: Client, member: User, admin: User, l20: AddedGpu
    ) -> None:
        analysis = services.submit(member, ASKED)
        added_gpus.remove(admin, l20)
        assert "NVIDIA L20" in html(pages, f"/{analysis.pk}/")
        assert "NVIDIA L20" in html(pages, "/history/")
        assert 'value="l20"' not in html(pages, "/new/")
        with added_gpus.offered():  # as another request would
            assert plan_request(analysis).gpu == "l20"

    def test_it_is_not_asked_for_any_more(self, member: User, admin: User, l20: AddedGpu) -> None:
        analysis = services.submit(member, ASKED)
        added_gpus.remove(admin, l20)
        for ask in (
            lambda: services.submit(member, ASKED),
            lambda: services.run_again(analysis, member),
            lambda: queries.predictable(ASKED),
        ):
            with pytest.raises(InvalidInput, match="NVIDIA L20 was removed from the catalogue by"):
                ask()

    def test_it_may_be_added_again(self, admin: User, l20: AddedGpu) -> None:
        added_gpus.remove(admin, l20)
        again = added_gpus.add(admin, L20 | {"power_watts": "300"})
        assert (again.pk, GPUS["l20"].power_watts) == (l20.pk, 300)
        with pytest.raises(InvalidInput, match="added it already"):
            added_gpus.add(admin, L20)


def test_after_a_request_nothing_of_the_lab_is_offered(pages: Client) -> None:
    pages.post("/gpus/add/", L20)
    pages.get("/gpus/")
    assert "l20" not in GPUS
    with added_gpus.offered():
        assert "l20" in GPUS
