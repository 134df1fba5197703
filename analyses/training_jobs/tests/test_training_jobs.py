from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase
from rest_framework.test import APIClient

from analyses.api.training_jobs import IMPORT_COST
from analyses.models import TrainingJob
from analyses.tests.factories import make_user, make_viewer
from analyses.training_jobs.services import MAX_JOBS, gpu_of, import_jobs
from analyses.training_jobs.tests.reported_jobs import TOTAL_BYTES, USED_BYTES, job_body
from engine.core.sizes import GIB
from engine.gpus import GPUS

pytestmark = pytest.mark.database

URL = "/api/v1/training-jobs/"


def _sent(api: APIClient, *jobs: Any) -> dict[str, Any]:
    response = api.post(URL, {"jobs": list(jobs)}, format="json")
    assert response.status_code == 200, response.json()
    found: dict[str, Any] = response.json()
    return found


def test_a_job_is_stored_with_its_member_gpu_and_hours(api: APIClient, member: User) -> None:
    assert _sent(api, job_body()) == {"new": 1, "updated": 0, "unchanged": 0, "refused": []}
    job = TrainingJob.objects.get()
    assert (job.owner, job.gpu, job.model) == (member, "a100-80gb", "bert")
    assert job.gpu_hours == pytest.approx(4)
    assert job.used_byte_hours == pytest.approx(4 * USED_BYTES)
    assert job.unused_byte_hours == pytest.approx(4 * (TOTAL_BYTES - USED_BYTES))


def test_a_job_sent_twice_is_one_row(api: APIClient, member: User) -> None:
    body = job_body()
    _sent(api, body)
    assert _sent(api, body)["unchanged"] == 1
    assert TrainingJob.objects.count() == 1


def test_a_job_named_twice_in_one_request_is_one_row(api: APIClient) -> None:
    assert _sent(api, job_body(), job_body(gpus=4))["new"] == 1
    assert TrainingJob.objects.get().gpus == 4


def test_a_running_job_grows_with_each_import(api: APIClient) -> None:
    now = timezone.now()
    begun = (now - timedelta(hours=3)).isoformat()
    seen = (now - timedelta(hours=2)).isoformat()
    _sent(api, job_body(started_at=begun, ended_at=seen, is_running=True))
    assert _sent(api, job_body(started_at=begun, ended_at=now.isoformat()))["updated"] == 1
    job = TrainingJob.objects.get()
    assert not job.is_running
    assert job.gpu_hours == pytest.approx(6)


@pytest.mark.parametrize(("later", "most"), [(None, 30), (20, 30), (40, 40)])
def test_the_most_that_a_job_used_is_kept_where_its_reporter_forgets_samples(
    api: APIClient, later: int | None, most: int
) -> None:
    job = job_body(reporter="dstack", used_bytes=30 * GIB)
    _sent(api, job)
    _sent(api, job | {"used_bytes": None if later is None else later * GIB})
    stored = TrainingJob.objects.get()
    assert stored.used_bytes == most * GIB
    assert stored.used_byte_hours == pytest.approx(4 * most * GIB)
    assert stored.unused_byte_hours == pytest.approx(4 * (TOTAL_BYTES - most * GIB))


def test_the_same_id_of_another_reporter_is_another_job(api: APIClient) -> None:
    assert _sent(api, job_body(), job_body(reporter="wandb"))["new"] == 2


def test_a_wrong_job_is_refused_and_the_others_are_stored(api: APIClient) -> None:
    found = _sent(api, job_body(gpus=0, nodes=3), job_body(id="della/2"))
    assert found["new"] == 1
    (refused,) = found["refused"]
    assert (refused["number"], refused["id"]) == (0, "della/1")
    assert set(refused["errors"]) == {"gpus", "nodes"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reporter", "pbs"),
        ("id", ""),
        ("id", "a\x00b"),
        ("gpus", 0),
        ("gpus", 1.5),
        ("started_at", "yesterday"),
        ("started_at", "2026-01-31T12:00:00"),
        ("ended_at", "2020-01-01T00:00:00Z"),
        ("ended_at", "2999-01-01T00:00:00Z"),
        ("used_bytes", -1),
        ("used_bytes", 2**60),
        ("samples_per_second", 0),
        ("samples_per_second", float("inf")),
        ("request", {"current_batch_size": 0}),
        ("request", {"model": "no such model"}),
        ("request", {"password": "x"}),
        ("name", "x" * 201),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(member: User, field: str, value: Any) -> None:
    found = import_jobs(member, {"jobs": [job_body(**{field: value})]})
    (refused,) = found.refused
    assert next(iter(refused.errors)).split(".")[0] == field
    assert not TrainingJob.objects.exists()


@pytest.mark.parametrize("body", [{}, {"jobs": []}, {"jobs": {}}, {"jobs": [1]}, {"jobs": None}])
def test_a_body_that_is_no_list_of_jobs_is_400(api: APIClient, body: dict[str, Any]) -> None:
    assert api.post(URL, body, format="json").status_code == 400


def test_too_many_jobs_are_400(api: APIClient) -> None:
    body = {"jobs": [job_body(id=f"{number}") for number in range(MAX_JOBS + 1)]}
    assert api.post(URL, body, format="json").status_code == 400
    assert not TrainingJob.objects.exists()


def test_a_members_job_is_the_members_whatever_it_is_called_there(
    api: APIClient, member: User
) -> None:
    _sent(api, job_body(user="gr0042"), job_body(user="", id="2"))
    assert {job.owner for job in TrainingJob.objects.all()} == {member}


def test_a_member_cannot_import_anothers_job(api: APIClient) -> None:
    make_user("ada")
    (refused,) = _sent(api, job_body(user="ADA"))["refused"]
    assert "another member" in refused["errors"]["user"][0]


def test_a_member_cannot_change_anothers_job(api: APIClient) -> None:
    import_jobs(make_user("ada"), {"jobs": [job_body(user="")]})
    (refused,) = _sent(api, job_body(user="", gpus=8))["refused"]
    assert "another member" in refused["errors"]["id"][0]
    assert TrainingJob.objects.get().gpus == 2


def test_an_admin_imports_everybodys_jobs(admin: User, member: User) -> None:
    ada = make_user("ada", email="ada@lab.example")
    jobs = [
        job_body(id="1", user="Grace"),
        job_body(id="2", user="ada@lab.example"),
        job_body(id="3", user="nobody"),
        job_body(id="4", user=""),
    ]
    assert import_jobs(admin, {"jobs": jobs}).new == 4
    owners = TrainingJob.objects.order_by("external_id").values_list("owner", flat=True)
    assert list(owners) == [member.pk, ada.pk, None, None]


def test_a_job_of_nobody_becomes_that_of_the_member_who_imports_it(
    admin: User, member: User
) -> None:
    import_jobs(admin, {"jobs": [job_body(user="gr0042")]})
    import_jobs(member, {"jobs": [job_body(user="gr0042")]})
    import_jobs(admin, {"jobs": [job_body(user="gr0042", gpus=4)]})
    job = TrainingJob.objects.get()
    assert (job.owner, job.gpus) == (member, 4)


def test_a_viewer_reads_jobs_and_imports_none(member: User) -> None:
    viewer = APIClient()
    viewer.force_authenticate(make_viewer())
    import_jobs(member, {"jobs": [job_body()]})
    assert viewer.get(URL).json()["count"] == 1
    assert viewer.post(URL, {"jobs": [job_body()]}, format="json").status_code == 403


def test_an_import_costs_more_units_than_a_look(
    api: APIClient, settings: Any, tmp_path: Any
) -> None:
    settings.DATA_DIR, settings.API_UNITS_PER_MINUTE = tmp_path, IMPORT_COST + 1
    _sent(api, job_body())
    assert api.get(URL).status_code == 200
    assert api.post(URL, {"jobs": [job_body()]}, format="json").status_code == 429


def test_without_the_total_memory_the_catalogue_has_it(member: User) -> None:
    import_jobs(member, {"jobs": [job_body(device_total_bytes=None)]})
    assert TrainingJob.objects.get().total_bytes == GPUS["a100-80gb"].total_bytes


def test_an_unknown_gpu_keeps_its_name_and_the_memory_that_was_reported(member: User) -> None:
    import_jobs(member, {"jobs": [job_body(device_name="a100_3g.20gb")]})
    job = TrainingJob.objects.get()
    assert (job.gpu, job.device_name, job.total_bytes) == ("", "a100_3g.20gb", TOTAL_BYTES)


def test_without_any_total_nothing_is_unused(member: User) -> None:
    import_jobs(member, {"jobs": [job_body(device_name="?", device_total_bytes=None)]})
    assert TrainingJob.objects.get().unused_byte_hours is None


def test_more_used_than_there_is_leaves_nothing_unused(member: User) -> None:
    import_jobs(member, {"jobs": [job_body(used_bytes=81 * GIB)]})
    assert TrainingJob.objects.get().unused_byte_hours == 0


@pytest.mark.parametrize(
    ("name", "total_bytes", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", None, "h100"),
        ("nvidia_rtx_a4500", None, "a4500"),
        ("tesla_a40", None, "a40"),
        ("h100", None, "h100"),
        ("a100", None, ""),
        ("NVIDIA GeForce RTX 3080", 12 * GIB, "rtx-3080-12gb"),
        ("local", None, ""),
        ("any", None, ""),
        ("", None, ""),
        ("gpu", None, ""),
    ],
)
def test_reported_gpus_are_found_in_the_catalogue(
    name: str, total_bytes: int | None, gpu: str
) -> None:
    assert gpu_of(name, total_bytes) == gpu


class AnyImport(TestCase):
    """Promises of every import."""

    @given(
        st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "id": st.text(max_size=5),
                    "user": st.text(max_size=5),
                    "gpus": st.integers(),
                    "used_bytes": st.none() | st.integers(),
                    "samples_per_second": st.none() | st.floats(),
                    "name": st.text(max_size=5),
                    "request": st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
                },
            ),
            min_size=1,
            max_size=5,
        )
    )
    def test_every_job_is_stored_or_refused_and_the_second_time_nothing_changes(
        self, changes: list[dict[str, Any]]
    ) -> None:
        member = User.objects.filter(username="hilda").first() or make_user("hilda")
        jobs = [job_body(**{"user": "", "id": f"{n}"} | one) for n, one in enumerate(changes)]
        first = import_jobs(member, {"jobs": jobs})
        again = import_jobs(member, {"jobs": jobs})
        stored = {one["id"] for one in jobs} - {jobs[r.number]["id"] for r in first.refused}
        assert set(TrainingJob.objects.values_list("external_id", flat=True)) >= stored
        assert again.refused == first.refused
        assert again.new == 0
