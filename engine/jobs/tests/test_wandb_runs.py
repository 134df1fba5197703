from __future__ import annotations

import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import EngineError, InvalidInput
from engine.core.sizes import GIB
from engine.jobs.wandb_runs import _frames, offline_jobs, online_jobs, run_of

HEADER = b":W&B\xe1\xbe\x00"
BLOCK, FRAME = 32 * 1024, 7


def written(records: list[bytes]) -> bytes:
    """The records as LevelDB's log writes them, after W&B's header; checksums are left out."""
    data = bytearray(HEADER)
    for record in records:
        rest, first = record, True
        while first or rest:
            left = BLOCK - len(data) % BLOCK
            if left < FRAME:
                data += bytes(left)
                continue
            piece, rest = rest[: left - FRAME], rest[left - FRAME :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            data += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
    return bytes(data)


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6))
def test_records_are_read_as_they_were_written(sizes: list[int]) -> None:
    records = [bytes([1 + number]) * size for number, size in enumerate(sizes)]
    assert list(_frames(written(records))) == records


@given(st.lists(st.integers(1, 2 * BLOCK), min_size=1, max_size=4), st.data())
def test_a_log_that_is_cut_off_gives_the_records_before(
    sizes: list[int], data: st.DataObject
) -> None:
    records = [bytes([1 + number]) * size for number, size in enumerate(sizes)]
    whole = written(records)
    end = data.draw(st.integers(len(HEADER), len(whole) - 1))
    found = list(_frames(whole[:end]))
    assert found == records[: len(found)]
    assert len(found) < len(records)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no offline runs"):
        list(offline_jobs(tmp_path))


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (tmp_path / "run-1.wandb").write_bytes(HEADER)
    with pytest.raises(EngineError, match="pip install wandb"):
        list(offline_jobs(tmp_path))
    with pytest.raises(EngineError, match="pip install wandb"):
        list(online_jobs("lab/project", None))


@pytest.mark.parametrize("path", ["project", "a/b/c", "/", "http://wandb.ai/a/b"])
def test_what_is_no_project_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="ENTITY/PROJECT"):
        list(online_jobs(path, None))


def _online(**changes: Any) -> SimpleNamespace:
    """Stands for a run of W&B's service, with the attributes that its API documents."""
    samples = [
        {"system.gpu.0.memoryAllocatedBytes": 20 * GIB, "_runtime": 15},
        {
            "system.gpu.0.memoryAllocatedBytes": 26 * GIB,
            "system.gpu.1.memoryAllocatedBytes": 70 * GIB,
            "system.gpu.process.0.memoryAllocatedBytes": 26 * GIB,
        },
        {"system.gpu.0.memoryAllocatedBytes": None},
    ]
    facts = {
        "id": "y11dvugh",
        "project": "lab",
        "name": "bert",
        "state": "finished",
        "created_at": "2026-11-01T12:00:00Z",
        "heartbeat_at": "2026-11-01T14:00:00Z",
        "config": {"per_device_train_batch_size": 16},
        "summary": {"train/train_samples_per_second": 99.5},
        "user": SimpleNamespace(username="grace"),
        "metadata": {
            "gpu": "NVIDIA A100-SXM4-80GB",
            "gpu_count": 4,
            "gpu_nvidia": [{"name": "NVIDIA A100-SXM4-80GB", "memoryTotal": f"{80 * GIB}"}],
        },
        "history": lambda **_options: samples,
    }
    return SimpleNamespace(**facts | changes)


def test_a_run_of_the_service_has_the_gpus_that_its_processes_used() -> None:
    job = run_of(_online()).job()
    assert job is not None
    assert (job.id, job.user, job.gpus) == ("lab/y11dvugh", "grace", 1)
    assert (job.used_bytes, job.device_total_bytes) == (26 * GIB, 80 * GIB)
    assert job.started_at == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert job.ended_at == datetime(2026, 11, 1, 14, tzinfo=UTC)
    assert job.samples_per_second == 99.5
    assert job.request == {"current_batch_size": 16}


def test_a_run_without_samples_has_all_gpus_of_the_machine_and_no_memory() -> None:
    job = run_of(_online(history=lambda **_options: [])).job()
    assert job is not None
    assert (job.gpus, job.used_bytes) == (4, None)


def test_a_run_without_a_gpu_is_no_job() -> None:
    assert run_of(_online(metadata=None, history=lambda **_options: [])).job() is None
