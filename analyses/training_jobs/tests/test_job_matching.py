"""Jobs that a scheduler and a tracker both report count once, with what both know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses.models import TrainingJob
from analyses.tests.factories import make_user
from analyses.training_jobs.gpu_hours import Selection, rows_by, sum_of
from analyses.training_jobs.tests.reported_jobs import TOTAL_BYTES, USED_BYTES, make_training_job
from engine.core.sizes import GIB

pytestmark = pytest.mark.database

UNKNOWN_TO_SLURM: dict[str, Any] = {
    "used_bytes": None, "device_total_bytes": None, "samples_per_second": None, "request": {},
    "device_name": "gpu",
}  # fmt: skip


def slurm(member: User, **changes: Any) -> TrainingJob:
    known = UNKNOWN_TO_SLURM | {"slurm_job_id": "1", "hosts": ["gpu01", "gpu02"]}
    return make_training_job(member, **(known | changes))


def wandb(member: User, **changes: Any) -> TrainingJob:
    return make_training_job(
        member, **({"reporter": "wandb", "id": "lab/run", "slurm_job_id": "1"} | changes)
    )


def hours() -> float:
    return sum_of(rows_by(Selection().of(TrainingJob.objects.all()), "gpu")).gpu_hours


def job_of(run: TrainingJob) -> TrainingJob | None:
    return TrainingJob.objects.get(pk=run.pk).scheduler_job


@pytest.mark.parametrize("first", ["slurm", "wandb"])
def test_a_run_that_names_its_slurm_job_counts_with_it_in_any_order(
    member: User, first: str
) -> None:
    makers = (slurm, wandb) if first == "slurm" else (wandb, slurm)
    for make in makers:
        make(member)
    job, run = (TrainingJob.objects.get(reporter=name) for name in ("slurm", "wandb"))
    assert run.scheduler_job == job
    assert hours() == pytest.approx(4.0)
    assert (job.used_bytes, job.total_bytes) == (USED_BYTES, TOTAL_BYTES)
    assert (job.gpu, job.model) == ("a100-80gb", "bert")
    assert job.unused_byte_hours == pytest.approx((TOTAL_BYTES - USED_BYTES) * 4.0)
    assert set(job.from_runs) == {
        "gpu", "model", "request", "samples_per_second", "total_bytes", "used_bytes",
    }  # fmt: skip


def test_what_the_scheduler_knows_stays(member: User) -> None:
    job = slurm(member, used_bytes=40 * GIB)
    wandb(member)
    job.refresh_from_db()
    assert job.used_bytes == 40 * GIB
    assert "used_bytes" not in job.from_runs


def test_an_import_again_keeps_what_runs_have_told(member: User) -> None:
    begun = datetime.now(UTC) - timedelta(hours=3)
    times = {"started_at": begun.isoformat(), "ended_at": timezone.now().isoformat()}
    slurm(member, **times)
    wandb(member, **times)
    before = TrainingJob.objects.get(reporter="slurm")
    again = slurm(member, **times)
    assert (again.used_bytes, again.model) == (USED_BYTES, "bert")
    assert again.imported_at == before.imported_at  # nothing has changed
    itself = slurm(member, **times, used_bytes=50 * GIB)
    assert itself.used_bytes == 50 * GIB
    assert "used_bytes" not in itself.from_runs


def test_several_runs_of_a_job_tell_the_most_memory_and_the_settings_of_the_longest(
    member: User,
) -> None:
    job, now = slurm(member), timezone.now()
    short = {"started_at": (now - timedelta(minutes=20)).isoformat()}
    wandb(member)
    wandb(member, id="lab/short", used_bytes=60 * GIB, request={"model": "gpt2"}, gpus=1, **short)
    job.refresh_from_db()
    assert (job.used_bytes, job.model) == (60 * GIB, "bert")
    assert hours() == pytest.approx(4.0)


def test_a_run_on_the_same_machine_at_the_same_time_of_the_same_member_is_part_of_the_job(
    member: User,
) -> None:
    job = slurm(member)
    here: dict[str, Any] = {"slurm_job_id": ""}
    run = wandb(member, hosts=["GPU01.cluster.lab"], **here)
    assert job_of(run) == job
    assert job_of(wandb(member, id="lab/elsewhere", hosts=["gpu09"], **here)) is None
    other = make_user("alan")
    assert job_of(wandb(other, id="lab/other", hosts=["gpu01"], **here)) is None
    early = (timezone.now() - timedelta(hours=5)).isoformat()
    earlier = wandb(member, id="lab/early", hosts=["gpu01"], started_at=early, **here)
    assert job_of(earlier) is None


def test_where_two_jobs_may_be_meant_none_is(member: User) -> None:
    for number in ("1", "2"):
        slurm(member, id=f"della/{number}", slurm_job_id=number)
    assert job_of(wandb(member, slurm_job_id="", hosts=["gpu01"])) is None
    assert hours() == pytest.approx(12.0)


def test_the_same_number_long_ago_or_on_another_cluster_is_another_job(member: User) -> None:
    long_ago = {
        "started_at": (timezone.now() - timedelta(days=90)).isoformat(),
        "ended_at": (timezone.now() - timedelta(days=89)).isoformat(),
    }
    slurm(member, id="old/1", **long_ago)
    here = slurm(member, id="new/1")
    slurm(make_user("alan"), id="other/1")
    assert job_of(wandb(member)) == here


def test_a_run_in_a_pod_needs_no_user(member: User) -> None:
    pod = slurm(member, reporter="kubernetes", id="uid", slurm_job_id="", hosts=["train-0"])
    TrainingJob.objects.update(owner=None, user="namespace")
    assert job_of(wandb(member, slurm_job_id="", hosts=["train-0"])) == pod


def test_without_its_job_a_run_counts_by_itself_again(member: User) -> None:
    job = slurm(member)
    wandb(member)
    job.delete()
    assert hours() == pytest.approx(4.0)
    assert TrainingJob.objects.get().scheduler_job is None


def test_page_and_api_say_so(client: Client, member: User) -> None:
    client.force_login(member)
    job = slurm(member)
    wandb(member)
    html = client.get("/gpu-hours/").content.decode()
    assert "1 run that W&amp;B or MLflow also reports counts once" in html
    assert "also reported by W&amp;B" in html
    by_reporter = {
        row["reporter"]: row for row in client.get("/api/v1/training-jobs/").json()["results"]
    }
    assert by_reporter["wandb"]["scheduler_job"] == job.pk
    assert "used_bytes" in by_reporter["slurm"]["from_runs"]
