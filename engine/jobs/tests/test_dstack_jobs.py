from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.cli.main import BAD_INPUT, OK, main
from engine.client.tests.fake_lab import FakeLab
from engine.core.errors import EngineError
from engine.jobs.dstack import TOKEN, URL, jobs_of
from engine.jobs.record import JobRecord, Reporter

GIB = 2**30


def machine(gpus: int, name: str = "A100", gib: int = 80) -> dict[str, Any]:
    """An ``instance_type``, without most of its fields."""
    one = {"memory_mib": gib * 1024, "name": name, "vendor": "nvidia"}
    return {"name": "p4de", "resources": {"cpus": 8, "gpus": [one] * gpus, "memory_mib": 65536}}


def submission(number: int, status: str = "done", gpus: int | None = 2) -> dict[str, Any]:
    """A submission of a job as a server of dstack 0.22.5 lists it, without most of its fields."""
    provisioned = None if gpus is None else {"backend": "aws", "instance_type": machine(gpus)}
    return {
        "id": f"5ac330fd-520f-426a-a730-0ffe32ff7b3{number}",
        "submission_num": number,
        "submitted_at": f"2026-11-27T{10 + number}:00:00Z",
        "last_processed_at": f"2026-11-27T{11 + number}:00:00Z",
        "finished_at": None if status == "running" else f"2026-11-27T{11 + number}:00:00Z",
        "status": status,
        "job_provisioning_data": provisioned,
        "job_runtime_data": None,
    }


def run(*submissions: dict[str, Any], kind: str = "task", name: str = "bert") -> dict[str, Any]:
    """A run as ``/api/runs/list`` has it, without most of its fields."""
    spec = {"job_num": 0, "replica_num": 0, "job_name": f"{name}-0-0"}
    return {
        "id": "9b0f6c1a-6f6f-4a8e-8b4e-0d6a0a0c9d11",
        "project_name": "main",
        "user": "ada",
        "submitted_at": "2026-11-27T10:00:00Z",
        "run_spec": {"run_name": name, "configuration": {"type": kind}},
        "jobs": [{"job_spec": spec, "job_submissions": list(submissions)}],
    }


def metrics(*used_gib: list[int]) -> dict[str, Any]:
    """An answer of ``/metrics/job/``: the last samples first, of each GPU."""
    times = [f"2026-11-27T12:00:{10 * number:02}Z" for number in range(len(used_gib[0]))]
    of_gpus = [
        {
            "name": f"gpu_memory_usage_bytes_gpu{gpu}",
            "timestamps": times,
            "values": [one * GIB for one in used],
        }
        for gpu, used in enumerate(used_gib)
    ]
    total = {"name": "gpu_memory_total_bytes", "timestamps": times[:1], "values": [80 * GIB]}
    return {"metrics": [total, *of_gpus]}


NO_METRICS: dict[str, Any] = {"metrics": []}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLab]:
    with FakeLab() as server:
        monkeypatch.setenv(URL, f"{server.url}/")
        monkeypatch.setenv(TOKEN, "secret")
        yield server


def listed(since: datetime | None = None) -> list[JobRecord]:
    return list(jobs_of(None, None, since))


def test_a_job_has_its_user_gpus_hours_and_the_memory_of_its_fullest_gpu(server: FakeLab) -> None:
    server.respond([run(submission(0))], metrics([24, 25, 10], [25, 26, 11]))
    (job,) = listed()
    assert (job.reporter, job.user, job.name) == (Reporter.DSTACK, "ada", "bert-0-0")
    assert (job.device_name, job.gpus, job.is_running) == ("A100", 2, False)
    assert job.started_at == datetime(2026, 11, 27, 10, tzinfo=UTC)
    assert job.ended_at == datetime(2026, 11, 27, 11, tzinfo=UTC)
    assert (job.used_bytes, job.device_total_bytes) == (26 * GIB, 80 * GIB)
    runs, samples = server.requests
    assert (runs.method, runs.path, samples.method) == ("POST", "/api/runs/list", "GET")
    assert urlsplit(samples.path).path == "/api/project/main/metrics/job/bert"
    assert parse_qs(urlsplit(samples.path).query)["run_id"] == [run()["id"]]
    assert {one.headers["Authorization"] for one in server.requests} == {"Bearer secret"}


def test_a_job_that_is_submitted_again_is_several_and_only_the_last_has_samples(
    server: FakeLab,
) -> None:
    server.respond([run(submission(0, "failed"), submission(1))], metrics([26, 20]))
    first, second = listed()
    assert (first.used_bytes, second.used_bytes) == (None, 26 * GIB)
    assert first.id != second.id


def test_a_running_job_ends_when_it_was_last_seen(server: FakeLab) -> None:
    server.respond([run(submission(0, "running"))], NO_METRICS)
    (job,) = listed()
    assert job.is_running
    assert job.ended_at == datetime(2026, 11, 27, 11, tzinfo=UTC)
    assert job.used_bytes is None


def test_a_job_that_shares_its_machine_has_its_own_gpus(server: FakeLab) -> None:
    shared = submission(0, gpus=8)
    shared["job_runtime_data"] = {"offer": {"instance": machine(1)}}
    server.respond([run(shared)], NO_METRICS)
    assert [job.gpus for job in listed()] == [1]


@pytest.mark.parametrize(
    "one",
    [
        run(submission(0, gpus=0)),
        run(submission(0, "submitted", gpus=None)),
        run(submission(0), kind="service"),
    ],
    ids=["without a GPU", "waiting for a machine", "a service"],
)
def test_what_trains_nothing_is_left_out(server: FakeLab, one: dict[str, Any]) -> None:
    server.respond([one])
    assert listed() == []


def test_all_pages_are_read(server: FakeLab) -> None:
    server.respond([run(submission(0, gpus=0))] * 100, [run(submission(0))], NO_METRICS)
    assert len(listed()) == 1
    first, second, _ = server.requests
    assert "prev_run_id" not in first.body
    assert second.body["prev_run_id"] == run()["id"]
    assert second.body["prev_submitted_at"] == run()["submitted_at"]


def test_samples_of_older_jobs_are_not_asked_for(server: FakeLab) -> None:
    server.respond([run(submission(0))])
    assert listed(datetime(2026, 11, 28, tzinfo=UTC)) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((403, {"detail": {"msg": "Invalid token"}}), "403.*Invalid token"),
        ((307, {}, {"Location": "http://127.0.0.1:1/"}), "dstack answered 307"),
        ({"runs": []}, "not what dstack's API is"),
        (b"<html>", "not what dstack's API is"),
    ],
)
def test_another_answer_is_an_error(server: FakeLab, answer: Any, told: str) -> None:
    server.respond(answer)
    with pytest.raises(EngineError, match=told):
        listed()


def test_a_server_that_is_down_is_told_so(server: FakeLab) -> None:
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:1 does not answer"):
        list(jobs_of("http://127.0.0.1:1", None, None))


def test_the_command_reads_one_project(server: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    server.respond([run(submission(0))], NO_METRICS)
    words = ["import", "dstack", "--project", "main", "--gpu", "A100=a100-80gb", "--dry-run"]
    assert main(words) == OK
    (job,) = json.loads(capsys.readouterr().out)
    assert job["device_name"] == "a100-80gb"
    assert server.requests[0].body["project_name"] == "main"


@pytest.mark.parametrize(
    ("missing", "told"), [(URL, f"or set {URL}"), (TOKEN, f"set {TOKEN} to the token")]
)
def test_the_command_names_what_is_not_set(
    server: FakeLab,
    missing: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(missing)
    assert main(["import", "dstack", "--dry-run"]) == BAD_INPUT
    assert told in capsys.readouterr().err
