"""Traces that are kept on disk are those that were made, and nothing depends on them."""

from __future__ import annotations

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.core.choices import Precision
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.tests.shared import small_workload
from engine.traces import tracer, workloads
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.source import TraceSource
from engine.traces.trace_files import FOLDER_VARIABLE, TraceFiles, trace_files
from engine.traces.workloads import KeptTraces
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models")]


def silent(_: object) -> None:
    """Ignores events and warnings."""


@pytest.fixture
def files(tmp_path: Path) -> TraceFiles:
    return TraceFiles(tmp_path / "traces")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Precision]:
    """The precision of each workload that was really traced."""
    counted: list[Precision] = []

    def trace(workload: Workload, *others: Any) -> TraceSource:
        counted.append(workload.precision)
        return trace_every_batch_size(workload, *others)

    monkeypatch.setattr(workloads, "trace_every_batch_size", trace)
    return counted


def asked(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse(
        {"model": "distilbert", "gpu": "a10", "sequence_length": 32} | fields
    )


def traced(
    files: TraceFiles | None, request: AnalysisRequest, capability: float = 8.6
) -> TraceSource:
    """As a process finds them that has traced nothing yet."""
    return KeptTraces(files=files).of(request, cuda_behaviour(capability), silent)


@pytest.mark.longer
def test_another_process_finds_equal_traces(files: TraceFiles, made: list[Precision]) -> None:
    fresh = traced(files, asked())
    again = traced(files, asked())
    assert len(made) == 1
    for batch_size in (1, 2, 7, 100):
        assert again.at(batch_size) == fresh.at(batch_size)
        assert again.at(batch_size).operations == fresh.at(batch_size).operations
        assert again.at(batch_size).replay() == fresh.at(batch_size).replay()


@pytest.mark.longer
def test_batch_one_is_kept_once_it_was_traced(
    files: TraceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = traced(files, asked()).at(1)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr(tracer, "trace_model", refuse)
    assert traced(files, asked()).at(1) == first


@pytest.mark.slow
def test_workloads_and_kinds_of_gpu_are_told_apart(
    files: TraceFiles, made: list[Precision]
) -> None:
    kinds = (("fp32", 8.6), ("fp32", 9.0), ("bf16-mixed", 9.0))
    for precision, capability in kinds:
        alone = traced(None, asked(precision=precision), capability).at(3)
        assert traced(files, asked(precision=precision), capability).at(3) == alone
    made.clear()
    for precision, capability in kinds:
        traced(files, asked(precision=precision), capability)
    assert made == []


@pytest.mark.longer
def test_tf32_has_the_traces_of_fp32(files: TraceFiles, made: list[Precision]) -> None:
    assert traced(files, asked(precision="tf32")).at(4) == traced(files, asked()).at(4)
    assert made == [Precision.FP32]


@pytest.mark.slow
def test_a_damaged_file_is_written_again(files: TraceFiles, made: list[Precision]) -> None:
    traced(files, asked())
    (path,) = files.folder.glob("*.trace")
    whole = path.read_bytes()
    no_trace = zlib.compress(pickle.dumps(Path("/")))
    for content in (b"", b"not compressed", zlib.compress(b"no pickle"), no_trace):
        made.clear()
        path.write_bytes(content)
        said: list[Event] = []
        KeptTraces(files=files).of(asked(), cuda_behaviour(8.6), said.append)
        assert len(made) == 1
        assert path.read_bytes() == whole
        warnings = [event for event in said if isinstance(event, Log) and event.level == "warning"]
        assert "is not usable and will be written again" in warnings[0].message


def test_only_our_own_classes_are_read(files: TraceFiles) -> None:
    workload = small_workload("distilbert")
    for other in (os.system, Path("/"), os.getcwd):
        said: list[str] = []
        files.save(workload, other, silent)
        assert files.load(workload, said.append) is None
        assert "is none of ours" in said[0]


def test_the_least_recently_used_files_are_removed(tmp_path: Path) -> None:
    names = ("bert", "roberta", "gpt2")
    workloads = [small_workload(name) for name in names]
    files = TraceFiles(tmp_path)
    files.save(workloads[0], "x", silent)
    each = sum(path.stat().st_size for path in tmp_path.iterdir())
    files = TraceFiles(tmp_path, most_bytes=2 * each)
    files.save(workloads[1], "x", silent)
    for age, workload in ((100, workloads[0]), (200, workloads[1])):
        os.utime(files._path(workload), (age, age))
    assert files.load(workloads[0], silent) == "x"
    files.save(workloads[2], "x", silent)
    assert [files.load(workload, silent) for workload in workloads] == ["x", None, "x"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files, said = TraceFiles(tmp_path / "file"), list[str]()
    files.save(small_workload("bert"), "x", said.append)
    assert "traces are not kept" in said[0]


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert trace_files() is None
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert trace_files() == TraceFiles(tmp_path)
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert trace_files() == TraceFiles(tmp_path / "memorymark" / "traces")


@pytest.mark.longer
def test_who_asks_for_the_same_at_once_has_it_traced_once(
    files: TraceFiles, made: list[Precision]
) -> None:
    with ThreadPoolExecutor() as pool:  # a file is locked by who opened it, a process or a thread
        first, second = pool.map(lambda _: traced(files, asked()).at(3), range(2))
    assert made == [Precision.FP32]
    assert first == second


@pytest.mark.longer
def test_another_kind_of_gpu_does_not_wait(files: TraceFiles, made: list[Precision]) -> None:
    request = asked(precision="bf16-mixed")
    with files.held(request.workload, "traced 8.6"):
        traced(files, request, 7.5)  # fuses no attention in bf16
    traced(files, request)
    assert len(made) == 2
    traced(files, request, 7.5)
    traced(files, request)
    assert len(made) == 2  # both are kept


@pytest.mark.longer
def test_nobody_waits_for_ever_for_another_process(
    files: TraceFiles, made: list[Precision], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.traces.trace_files.MAX_WAIT_SECONDS", 0.05)
    request = asked()
    with files.held(request.workload, "traced 8.6") as waited:
        assert not waited
        traced(files, request)
    assert made == [Precision.FP32]


def test_a_trace_that_fails_holds_nobody_back(files: TraceFiles) -> None:
    workload = small_workload("bert")
    with pytest.raises(RuntimeError), files.held(workload, "traced"):
        raise RuntimeError
    with files.held(workload, "traced") as waited:
        assert not waited
