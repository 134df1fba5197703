"""The GPU benchmark without a GPU: its plan, its file, what it leaves out and how it resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.commands import TOOLS
from benchmarks.gpu.results import (
    Device,
    Predicted,
    Results,
    Row,
    Search,
    format_capacity,
    load,
    resume,
    save,
)
from benchmarks.gpu.run import ON_A_GPU, Budget, Capacities, Item, Kind, Run, plan
from benchmarks.gpu.workloads import FULL, QUICK, Benchmarked, Half, chosen
from engine.core.errors import EngineError, InvalidInput, MeasurementFailed
from engine.gpus.checked import FixedCost
from engine.interface.result import MeasuredOn
from engine.interface.trial import Source, Trial
from engine.measurement.parent import OutOfTime
from engine.measurement.protocol import DeviceFacts, TrialOrder

GIB = 2**30
H200 = Device(
    DeviceFacts("cuda", "NVIDIA H200", 140 * GIB, GIB // 2, 9.0),
    MeasuredOn("NVIDIA H200", "2.11.0", "5.17.0", 16, driver="580.1", cuda="13.0"),
    (FixedCost("CUDA context", GIB // 2, 2**21, 0, 512, 4),),
)


def trial(batch_size: int, fits: bool = True, **figures: Any) -> Trial:
    return Trial(batch_size, fits, Source.MEASURED, **figures)


def row(name: str, batch_size: int, fits: bool = True, limit: int | None = None) -> Row:
    return Row(name, limit, trial(batch_size, fits, peak_allocated_bytes=batch_size), 1.5)


# --- the workloads and the plan ---------------------------------------------------------------


def test_both_halves_have_the_same_size_and_every_way_of_training() -> None:
    calibration = [one.workload for one in FULL if one.half is Half.CALIBRATION]
    held_out = [one.workload for one in FULL if one.half is Half.HELD_OUT]
    assert len(calibration) == len(held_out) == len(FULL) / 2
    assert len({one.name for one in (*FULL, *QUICK)}) == len(FULL) + len(QUICK)
    assert [one.fields["model"] for one in FULL[:3]] == ["bert", "gpt2", "resnet"]
    assert len(FULL) >= 3 + 10
    ways: list[Callable[[Any], object]] = [
        lambda workload: workload.precision,
        lambda workload: workload.attention,
        lambda workload: workload.gradient_checkpointing,
        lambda workload: workload.lora_rank,
    ]
    for way in ways:
        assert {way(workload) for workload in calibration} == {way(w) for w in held_out}
    for half in (calibration, held_out):
        assert len({workload.optimizer for workload in half}) >= 3
        assert {workload.sequence_length is None for workload in half} == {True, False}


def test_every_workload_has_a_small_and_a_larger_batch() -> None:
    for one in (*FULL, *QUICK):
        small, middle = one.batch_sizes
        assert 0 < small < middle


def test_the_plan_starts_with_every_workload_and_ends_with_the_rest() -> None:
    items = plan(FULL, ON_A_GPU, TOOLS, 140 * GIB)
    assert len(items) == len(set(items)) == 16 + 5 * 16 + len(TOOLS)
    assert [item.kind for item in items[:16]] == [Kind.SIZES] * 16
    assert [item.limit_bytes for item in items[16:32]] == [24 * GIB] * 16
    searches = [index for index, item in enumerate(items) if item.kind is Kind.SEARCH]
    truth = items.index(Item(Kind.LIMIT, "bert-fp32", limit_bytes=16 * GIB))
    assert truth < searches[0]
    whole = [item.name for item in items if item.kind is Kind.LIMIT and item.limit_bytes is None]
    assert sorted(whole) == sorted(one.name for one in FULL)


def test_a_capacity_above_the_devices_memory_is_left_out() -> None:
    limits = {item.limit_bytes for item in plan(FULL, ON_A_GPU, TOOLS, 20 * GIB)}
    assert limits == {None, 16 * GIB}
    searched = Capacities(24 * GIB, (None,), 24 * GIB)
    assert all(i.kind is not Kind.SEARCH for i in plan(FULL, searched, TOOLS, 20 * GIB))


def test_an_unknown_name_is_refused_with_a_reason() -> None:
    with pytest.raises(InvalidInput, match="no workload bart; choose from bert-fp32, gpt2-fp32"):
        chosen(FULL, ["bart"])
    assert [one.name for one in chosen(FULL, ["gpt2-fp32"])] == ["gpt2-fp32"]


@pytest.mark.torch
def test_the_searches_are_those_of_the_other_benchmark() -> None:
    from benchmarks.gpu.child import OURS
    from benchmarks.searchers import SEARCHERS

    assert sorted(TOOLS) == sorted(searcher.name for searcher in SEARCHERS)
    assert OURS == "MemoryMark"


def test_packages_a_bare_machine_may_lack_are_not_loaded() -> None:
    code = (
        "import sys, benchmarks.gpu.__main__; "
        "sys.exit(bool({'torch', 'rich', 'pynvml', 'peft'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the file ---------------------------------------------------------------------------------


def full_results() -> Results:
    predicted = Trial(8, True, Source.PREDICTED, peak_allocated_bytes=7, step_seconds=0.5)
    return Results(
        H200,
        ["abc"],
        [
            replace(row("bert-fp32", 8), predicted=predicted),
            row("bert-fp32", 9, fits=False, limit=16 * GIB),
        ],
        [Predicted("bert-fp32", None, 8)],
        [
            Search("linear scan by 8", "", "bert-fp32", 16 * GIB, 8, 2, 1.5, ((8, True),)),
            Search("Lightning", None, "bert-fp32", 16 * GIB),
        ],
        {"bert-fp32: batch 8": "why"},
        ["gpt2-fp32: batch 2"],
        [("2026-11-20T18:00:00+00:00", 500.0)],
    )


def test_results_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    save(path, full_results())
    assert load(path) == full_results()
    assert json.loads(path.read_text())["source"] == "measured"
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no results"),
        ("[]", "no results"),
        ('{"schema": 99}', "schema 99, and this engine reads 1"),
        ('{"schema": 1}', "damaged"),
    ],
)
def test_a_file_that_is_not_ours_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(EngineError, match=why) as raised:
        load(path)
    assert str(path) in str(raised.value)


def test_another_device_or_version_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save(path, full_results())
    assert resume(path, H200).rows == full_results().rows
    newer = replace(H200, ran_on=replace(H200.ran_on, torch="2.13.0", clock_mhz=1980))
    with pytest.raises(EngineError, match=r"torch 2.11.0, here 2.13.0\).*--out.*--fresh"):
        resume(path, newer)
    smaller = replace(H200, facts=replace(H200.facts, total_bytes=80 * GIB))
    with pytest.raises(EngineError, match="memory in bytes"):
        resume(path, smaller)
    assert resume(tmp_path / "none.json", newer).rows == []
    mended = replace(H200, ran_on=replace(H200.ran_on, driver="580.2"))
    assert resume(path, mended).rows == full_results().rows
    other = replace(H200, ran_on=replace(H200.ran_on, driver="590.1"))
    with pytest.raises(EngineError, match="branch of the driver 580, here 590"):
        resume(path, other)


def test_a_limit_is_certified_by_a_batch_that_fits_and_the_next_that_does_not() -> None:
    results = Results(H200, rows=[row("a", 8), row("a", 10, fits=False)])
    assert results.largest("a", None) is None
    results.rows.append(row("a", 9))
    assert results.largest("a", None) == 9
    assert results.largest("a", 16 * GIB) is None
    assert Results(H200, rows=[row("a", 1, fits=False)]).largest("a", None) == 0
    assert Results(H200, rows=[row("a", 1)]).largest("a", None) is None


def test_a_capacity_has_a_readable_name() -> None:
    assert [format_capacity(limit) for limit in (16 * GIB, 20 * 2**20, None)] == [
        "16 GiB",
        "20 MiB",
        "the whole device",
    ]


# --- the run ----------------------------------------------------------------------------------


class Fake:
    """A device with a GiB per sample, a second per trial and perfect guesses."""

    def __init__(self, broken: str = "") -> None:
        self.now = 0.0
        self.broken = broken
        self.measured: list[tuple[str, int | None, int]] = []
        self.saved = 0

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        name = getattr(order.workload, "model", "")
        if deadline_seconds < 1:
            self.now += deadline_seconds
            raise OutOfTime("too slow")
        self.now += 1
        if name == self.broken:
            raise MeasurementFailed("LoRA needs the package peft")
        self.measured.append((name, order.memory_limit_bytes, order.batch_size))
        largest = (order.memory_limit_bytes or 140 * GIB) // GIB
        return trial(order.batch_size, order.batch_size <= largest)

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        return (limit_bytes or 140 * GIB) // GIB

    def search(self, row: Search, deadline_seconds: float) -> Search:
        self.now += 1
        if row.tool.startswith("Lightning"):
            return row
        return replace(row, version="", answer=16, trials=3, seconds=1.0)

    def clock(self) -> float:
        return self.now

    def save(self) -> None:
        self.saved += 1


class Misjudged(Fake):
    """A tenth of a GiB per sample, and predictions that are 3% too high."""

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        self.now += 1
        usable = (order.memory_limit_bytes or 140 * GIB) - GIB // 2
        needed = GIB + order.batch_size * GIB // 10
        if needed > usable:
            return trial(order.batch_size, fits=False, peak_reserved_bytes=usable)
        return trial(order.batch_size, peak_reserved_bytes=needed, alloc_retries=0)

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        return round(((limit_bytes or 140 * GIB) / GIB - 1.5) * 10 * 1.03)


def work_through(
    fake: Fake, results: Results, seconds: float, workloads: tuple[Benchmarked, ...] = FULL
) -> list[str]:
    said: list[str] = []
    items = plan(workloads, ON_A_GPU, TOOLS, 140 * GIB)
    Run(results, fake, Budget(seconds, fake.clock), fake.save, said.append).work_through(items)
    return said


def test_with_enough_time_every_limit_is_certified_by_two_trials() -> None:
    fake, results = Fake(), Results(H200)
    work_through(fake, results, 1000)
    assert not results.left_out
    assert not results.failures
    for one in FULL:
        assert results.largest(one.name, 24 * GIB) == 24
        assert results.largest(one.name, None) == 140
    # The small and the medium batch also count for the search on the whole device.
    assert len(fake.measured) == len(results.rows) == 16 * 2 + 16 * 5 * 2
    assert fake.saved > len(results.rows)


def test_measurements_lead_to_the_limit_where_the_prediction_is_off() -> None:
    fake, results = Misjudged(), Results(H200)
    work_through(fake, results, 1000, FULL[:1])
    assert results.largest("bert-fp32", 24 * GIB) == 225
    assert results.largest("bert-fp32", None) == 1385
    tried = [len(results.trials("bert-fp32", gib * GIB)) for gib in (24, 16, 80, 40)]
    assert tried[0] <= 5
    assert sum(tried[1:]) <= 3 * 4


def test_a_limit_below_a_size_measured_without_one_is_certified_under_it() -> None:
    """The largest batch fitted without a limit, and runs again under it."""
    fake, results = Fake(), Results(H200)
    results.rows = [
        Row("bert-fp32", None, trial(size, peak_reserved_bytes=size * GIB), 1.0) for size in (8, 16)
    ]
    item = Item(Kind.LIMIT, "bert-fp32", limit_bytes=17 * GIB)
    Run(results, fake, Budget(100, fake.clock), fake.save, lambda _: None).work_through([item])
    assert results.largest("bert-fp32", 17 * GIB) == 17
    item = Item(Kind.LIMIT, "bert-fp32", limit_bytes=GIB * 33 // 2)
    Run(results, fake, Budget(100, fake.clock), fake.save, lambda _: None).work_through([item])
    assert results.largest("bert-fp32", GIB * 33 // 2) == 16
    assert not results.failures


def test_out_of_time_the_rest_is_listed_and_a_second_run_does_only_that() -> None:
    fake, results = Fake(), Results(H200)
    work_through(fake, results, 60)
    assert fake.now <= 60
    assert {row.workload for row in results.rows} == {one.name for one in FULL}
    assert "bert-fp32: search on 16 GiB by MemoryMark" in results.left_out
    assert len(results.left_out) > 40
    first = list(results.rows)
    work_through(fake, results, 1000)
    assert results.rows[: len(first)] == first
    tried = {(row.workload, row.limit_bytes, row.measured.batch_size) for row in results.rows}
    assert len(tried) == len(results.rows) == len(fake.measured)
    assert not results.left_out


def test_a_trial_cut_off_by_the_deadline_is_left_out_and_no_failure() -> None:
    fake, results = Fake(), Results(H200)
    work_through(fake, results, 5.5)
    assert not results.failures
    assert results.left_out[0] == "gpt2-fp32: batch 2 and 6"
    assert len(results.left_out) == 16 + 5 * 16 + len(TOOLS) - 1


def test_a_failed_workload_is_recorded_and_the_rest_continues() -> None:
    fake, results = Fake(broken="qwen3-0.6b, 8 layers"), Results(H200)
    work_through(fake, results, 1000)
    assert len(results.failures) == 6
    assert "peft" in results.failures["qwen-lora: batch 1 and 4"]
    assert "not tried" in results.failures["qwen-lora: largest batch on 24 GiB"]
    assert {row.workload for row in results.rows} == {o.name for o in FULL} - {"qwen-lora"}
    fake.broken = ""
    work_through(fake, results, 1000)
    assert not results.failures
    assert results.largest("qwen-lora", None) == 140


def test_a_missing_tool_is_reported_and_tried_again_by_the_next_run() -> None:
    fake, results = Fake(), Results(H200)
    said = work_through(fake, results, 1000)
    assert said.count("  not installed") == 2
    assert [search.version for search in results.searches].count(None) == 2
    assert work_through(fake, results, 1000).count("  not installed") == 2
    assert len(results.searches) == len(TOOLS)


# --- the commands -----------------------------------------------------------------------------


def test_command_line_mistakes_say_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main(["--device", "cpu"]) == 2
    assert "add --quick" in capsys.readouterr().err
    assert command.main(["--device", "cpu", "--quick", "--only", "bert-fp32"]) == 2
    assert "choose from small-bert" in capsys.readouterr().err
    assert command.main(["report", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        command.main(["--budget-seconds", "1"])


def test_the_report_is_printed_and_a_cpu_file_cannot_calibrate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    on_cpu = replace(H200, facts=replace(H200.facts, kind="cpu"), quick=True)
    save(path, replace(full_results(), device=on_cpu))
    assert command.main(["report", str(path)]) == 0
    assert "NOT A GPU" in capsys.readouterr().out
    assert command.main(["calibrate", str(path)]) == 2
    assert "no GPU to calibrate" in capsys.readouterr().err
