"""Predicted steps in the formats of other tools say what the answer says."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch.cuda._memory_viz as memory_viz

from engine.allocator.options import AllocatorOptions
from engine.cli.main import main
from engine.cli.terminal import OK
from engine.core.choices import Precision
from engine.exports.chrome_trace import chrome_trace
from engine.exports.memory_snapshot import memory_snapshot
from engine.gpus import GPUS
from engine.prediction.timing.step_time import predict_step_seconds
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models")]

DEFAULT, EXPANDABLE = AllocatorOptions(), AllocatorOptions(expandable_segments=True)
ASKED = ["predict", "bert", "--gpu", "a10", "--batch-size", "4"]
REFUSED = 2
CHANGES = {
    "alloc": 1,
    "free_completed": -1,
    "segment_alloc": 1,
    "segment_map": 1,
    "segment_free": -1,
    "segment_unmap": -1,
}


@pytest.fixture
def traced() -> Trace:
    return trace(small_workload("bert"), 8, cuda_behaviour(8.6))


def peak(entries: Iterable[dict[str, Any]], *, of_segments: bool) -> int:
    """The highest sum of what is taken and given back, as the viewer draws it."""
    sums: Iterable[int] = accumulate(
        CHANGES[one["action"]] * one["size"]
        for one in entries
        if one["action"] in CHANGES and one["action"].startswith("segment") == of_segments
    )
    return max(sums)


def copied(written: bytes) -> Any:
    return pickle.loads(written)  # noqa: S301  # our own


class TestMemorySnapshot:
    @pytest.mark.parametrize("options", [DEFAULT, EXPANDABLE])
    def test_its_peaks_are_those_of_the_prediction(
        self, traced: Trace, options: AllocatorOptions
    ) -> None:
        snapshot = memory_snapshot(traced, options)
        (entries,) = snapshot["device_traces"]
        assert peak(entries, of_segments=False) == traced.peak_by_category()[0]
        replayed = traced.replay(None, options)
        assert peak(entries, of_segments=True) == replayed.peak_reserved_bytes

    @pytest.mark.parametrize("options", [DEFAULT, EXPANDABLE])
    def test_its_segments_are_whole_and_hold_what_is_alive_at_the_end(
        self, traced: Trace, options: AllocatorOptions
    ) -> None:
        snapshot = memory_snapshot(traced, options)
        segments, (entries,) = snapshot["segments"], snapshot["device_traces"]
        for segment in segments:
            assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
            for one, other in pairwise(segment["blocks"]):
                assert one["address"] + one["size"] == other["address"]
        alive = sum(segment["requested_size"] for segment in segments)
        taken = [one for one in entries if one["action"] in ("alloc", "free_completed")]
        assert alive == sum(CHANGES[one["action"]] * one["size"] for one in taken)
        held = [one for one in entries if one["action"] in CHANGES and one not in taken]
        total = sum(CHANGES[one["action"]] * one["size"] for one in held)
        assert total == sum(segment["total_size"] for segment in segments)

    def test_pytorchs_own_tools_read_it(self, traced: Trace) -> None:
        snapshot = copied(pickle.dumps(memory_snapshot(traced)))
        reserved = sum(segment["total_size"] for segment in snapshot["segments"])
        assert f"total_reserved: {memory_viz.Bytes(reserved)}" in memory_viz.segsum(snapshot)
        assert "cudaMalloc" in memory_viz.trace(snapshot)
        assert "<script" in memory_viz.trace_plot(snapshot)
        assert "<script" in memory_viz.segment_plot(snapshot)

    def test_a_stack_names_the_operator_and_its_modules_from_the_inside_out(
        self, traced: Trace
    ) -> None:
        (entries,) = memory_snapshot(traced)["device_traces"]
        stacks = [[frame["name"] for frame in one["frames"]] for one in entries]
        query = "bert.encoder.layer.0.attention.self.query"
        stack = next(found for found in stacks if found[:2] == ["aten.addmm", query])
        assert stack[2:4] == [
            "bert.encoder.layer.0.attention.self",
            "bert.encoder.layer.0.attention",
        ]
        assert stack[-1] == "forward"

    def test_addresses_are_those_that_viewers_count_on(self, traced: Trace) -> None:
        snapshot = memory_snapshot(traced)
        (entries,) = snapshot["device_traces"]
        assert all(0 < one["addr"] < 2**47 for one in entries)
        starts = [segment["address"] for segment in snapshot["segments"]]
        assert len(set(starts)) == len(starts)


class TestChromeTrace:
    @pytest.mark.parametrize("gpu", ["h100", "t4"])
    @pytest.mark.parametrize("batch_size", [2, 4_096])  # the host decides, the GPU decides
    def test_it_ends_when_the_predicted_step_does(self, gpu: str, batch_size: int) -> None:
        traced = trace(small_workload("bert"), batch_size, cuda_behaviour(8.6))
        written = chrome_trace(traced, GPUS[gpu], Precision.FP32)
        seconds = predict_step_seconds(traced.operations, GPUS[gpu], Precision.FP32)
        assert written["otherData"]["step_seconds"] == pytest.approx(seconds)
        end = max(one["ts"] + one["dur"] for one in written["traceEvents"] if one["ph"] == "X")
        assert end / 1e6 == pytest.approx(seconds, rel=1e-6)

    def test_its_kernels_run_one_after_another_within_their_phase(self, traced: Trace) -> None:
        events = chrome_trace(traced, GPUS["a10"], Precision.FP32)["traceEvents"]
        kernels = [one for one in events if one.get("cat") == "kernels"]
        phases = [one for one in events if one.get("cat") == "phases"]
        assert {"forward", "backward", "optimizer"} <= {one["name"] for one in phases}
        assert any(one["name"] == "aten.addmm" and one["args"]["flops"] for one in kernels)
        for one, other in pairwise(kernels):
            assert one["ts"] + one["dur"] <= other["ts"] + 1e-6
        for kernel in kernels:
            assert any(
                phase["ts"] - 1e-6 <= kernel["ts"]
                and kernel["ts"] + kernel["dur"] <= phase["ts"] + phase["dur"] + 1e-6
                for phase in phases
            )


class TestCommand:
    @pytest.mark.longer
    def test_it_writes_both_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        snapshot, step = tmp_path / "step.pickle", tmp_path / "step.json"
        files = ["--memory-snapshot", str(snapshot), "--chrome-trace", str(step)]
        assert (
            main(["predict", "bert", "--gpu", "a10", "--batch-size", "4", "--json", *files]) == OK
        )
        trial = json.loads(capsys.readouterr().out)
        (entries,) = copied(snapshot.read_bytes())["device_traces"]
        assert peak(entries, of_segments=True) == trial["peak_reserved_bytes"]
        written = json.loads(step.read_text())
        assert written["otherData"]["step_seconds"] == pytest.approx(trial["step_seconds"])

    @pytest.mark.parametrize("flag", ["--memory-snapshot", "--chrome-trace"])
    def test_a_file_without_a_folder_is_refused_before_anything_is_traced(
        self, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(tmp_path / "none" / "step")
        assert main([*ASKED, flag, file]) == REFUSED
        assert f"{flag}: there is no folder" in capsys.readouterr().err

    @pytest.mark.slow
    def test_a_machine_without_cuda_has_no_measured_snapshot(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, limit = str(tmp_path / "step.pickle"), ["--memory-limit", "2GiB"]
        asked = ["measure", "bert", "--batch-size", "1", *limit, "--memory-snapshot", file]
        assert main(asked) == REFUSED
        assert "--memory-snapshot: " in (said := capsys.readouterr().err)
        assert "has no CUDA caching allocator" in said

    def test_no_kernels_of_a_pipeline_are_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pipeline = ["--world-size", "2", "--pipeline-parallel", "2", "--gradient-accumulation", "4"]
        file = ["--chrome-trace", str(tmp_path / "step.json")]
        asked = ["predict", "gpt2", "--gpu", "a10", "--batch-size", "4", *pipeline, *file]
        assert main(asked) == REFUSED
        assert "--chrome-trace: not for pipelines" in capsys.readouterr().err
