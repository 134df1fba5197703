from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.jobs.jobstats import GpuMemory, gpu_memory
from engine.jobs.record import MAX_HOSTS, Reporter
from engine.jobs.slurm import COLUMNS, hosts_of, jobs_of, run_sacct
from engine.jobs.tests.slurm_output import (
    GIB,
    HEADER,
    STARTED,
    SUMMARY,
    TABLE,
    TOTAL_BYTES,
    USED_BYTES,
    jobstats,
    json_job,
)

START = datetime.fromtimestamp(STARTED, UTC)


def test_a_job_has_its_user_gpus_hours_and_the_memory_of_its_fullest_gpu() -> None:
    job = jobs_of(TABLE)[0]
    assert (job.reporter, job.id, job.user, job.name) == (
        Reporter.SLURM, "della/100", "ada", "bert",
    )  # fmt: skip
    assert (job.device_name, job.gpus, job.is_running) == ("a100", 2, False)
    assert (job.started_at, job.ended_at) == (START, START + timedelta(hours=2))
    assert (job.used_bytes, job.device_total_bytes) == (USED_BYTES, TOTAL_BYTES)


def test_a_job_has_its_number_without_the_cluster() -> None:
    assert jobs_of(TABLE)[0].slurm_job_id == "100"


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("", ()),
        ("gpu01", ("gpu01",)),
        ("gpu[08-10,3],login", ("gpu08", "gpu09", "gpu10", "gpu3", "login")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
        ("None assigned", ("None assigned",)),
        ("gpu[a-b]", ("gpu[a-b]",)),
    ],
)
def test_a_list_of_nodes_is_read_as_slurm_writes_it(nodes: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(nodes) == hosts


def test_a_list_of_nodes_has_an_end() -> None:
    assert len(hosts_of("gpu[1-99999999]")) == MAX_HOSTS


def test_without_jobstats_the_memory_is_the_mean_of_what_slurm_summed_up() -> None:
    job = jobs_of(TABLE)[1]
    assert (job.id, job.used_bytes, job.device_total_bytes) == ("della/101_1", 10 * GIB, None)


def test_a_running_job_ends_when_it_was_last_seen() -> None:
    job = jobs_of(TABLE)[1]
    assert job.is_running
    assert job.ended_at == START + timedelta(hours=1)


def test_without_a_type_the_partition_names_the_gpu() -> None:
    assert jobs_of(TABLE)[1].device_name == "gpu"


def test_jobs_without_gpus_or_a_start_are_left_out() -> None:
    assert [job.id for job in jobs_of(TABLE)] == ["della/100", "della/101_1", "della/105"]


def test_a_job_with_a_summary_of_nothing_has_no_memory() -> None:
    assert jobs_of(TABLE)[2].used_bytes is None


@pytest.mark.parametrize("wrapped", [False, True], ids=["Slurm 23.02", "Slurm 23.11"])
def test_json_gives_the_same_job_as_the_table(wrapped: bool) -> None:
    text = json.dumps({"meta": {}, "errors": [], "jobs": [json_job(wrapped, SUMMARY)]})
    assert jobs_of(text) == jobs_of(TABLE)[:1]


def test_json_without_jobstats_has_the_mean_over_gpus() -> None:
    text = json.dumps({"jobs": [json_job(True, used=2 * 7 * GIB)]})
    assert jobs_of(text)[0].used_bytes == 7 * GIB


def test_times_without_a_zone_are_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TABLE.replace(f"|{STARTED}|", "|2026-11-18T12:00:00|")
    local = datetime(2026, 11, 18, 12).astimezone()  # as sacct prints it
    assert jobs_of(text)[0].started_at == local


@pytest.mark.parametrize("text", ["", "JobID|User\n1|ada", "{", '{"jobs": [{}]}', "[]"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="sacct"):
        jobs_of(text)


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "a remark",
        "JS1:Short",
        "JS1:None",
        "JS1:AAAA",
        "JS1:H4sIAAAA",
        jobstats({}),
        SUMMARY[:99],
    ],
)
def test_a_comment_without_a_summary_has_no_memory(comment: str) -> None:
    assert gpu_memory(comment) == GpuMemory()


def test_jobstats_of_several_nodes_give_the_fullest_gpu_of_all() -> None:
    comment = jobstats(
        {
            "gpu-1": {"gpu_used_memory": {"0": 3 * GIB}, "gpu_total_memory": {"0": TOTAL_BYTES}},
            "gpu-2": {"gpu_used_memory": {"0": 5 * GIB}, "gpu_total_memory": {"0": TOTAL_BYTES}},
            "cpu-1": {"used_memory": 1},
        }
    )
    assert gpu_memory(comment) == GpuMemory(5 * GIB, TOTAL_BYTES)


def test_sacct_is_asked_for_the_columns_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    sacct = tmp_path / "sacct"
    sacct.write_text(f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $@" > {told}\necho "{HEADER}"\n')
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert jobs_of(run_sacct(START, all_users=True)) == []
    words = told.read_text().rstrip().split(" ")
    assert words[0] == "%s"
    assert "--allusers" in words
    assert f"--format={','.join(COLUMNS)}" in words
    assert "--delimiter=\x1f" in words


def test_a_job_with_the_delimiter_in_its_name_is_read_where_sacct_runs_here() -> None:
    text = TABLE.replace("|a|b|", "|a:b|").replace("|", "\x1f").replace("a:b", "a|b")
    assert "a|b" in [job.name for job in jobs_of(text)]


def test_a_machine_without_sacct_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="sacct is not installed here"):
        run_sacct(START, all_users=False)


def test_a_failure_of_sacct_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sacct = tmp_path / "sacct"
    sacct.write_text("#!/bin/sh\necho 'sacct: error: slurmdbd is down' >&2\nexit 1\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(EngineError, match="slurmdbd is down"):
        run_sacct(START, all_users=False)
