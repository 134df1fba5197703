"""The engine's CUDA side from the command to a certified answer, on a GPU that is not there.

Processes of trials find :mod:`engine.tests.cuda_stand_in`, in a build with CUDA and in one without.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from engine.models.presets import PRESETS
from engine.script.tests.test_program_traced import loop
from engine.tests.cuda_stand_in import FOLDER
from engine.tests.small import made_small

pytestmark = [pytest.mark.slow, pytest.mark.torch]

ROOT = Path(__file__).parents[3]
DRIVER = ROOT / "drills" / "driver"
GIB = 2**30
LIMIT = "512MiB"
"""Half of it is for the context."""


def environment() -> Mapping[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (FOLDER, DRIVER, ROOT))),
        "OMP_NUM_THREADS": "1",
    }


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def small_model(tmp_path: Path) -> list[str]:
    """The flags that name a small model on short texts."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(made_small(PRESETS["bert"].config())))
    return ["small-bert", "--config", str(config), "--sequence-length", "8"]


def test_a_batch_is_measured(small_model: list[str]) -> None:
    told = json.loads(run("-m", "engine", "measure", *small_model, "--batch-size", "2", "--json"))
    text = json.dumps(told)
    assert "NVIDIA A10" in text
    trial = _find(told, "peak_reserved_bytes")
    assert trial["fits"]
    assert 0 < trial["peak_allocated_bytes"] <= trial["peak_reserved_bytes"]
    assert trial["device_used_bytes"] >= trial["peak_reserved_bytes"] + GIB // 4
    assert trial["alloc_retries"] == 0


def test_a_measured_memory_snapshot_has_the_peak_of_its_trial(
    small_model: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "step.pickle"
    asked = ["measure", *small_model, "--batch-size", "2", "--memory-snapshot", str(file)]
    trial = _find(json.loads(run("-m", "engine", *asked, "--json")), "peak_reserved_bytes")
    assert 0.9 <= peak_of(file) / trial["peak_allocated_bytes"] <= 1  # which rounds up


def test_a_batch_that_runs_out_of_memory_has_a_snapshot_up_to_there(
    small_model: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "step.pickle"
    limit = ["--memory-limit", "260MiB", "--batch-size", "64", "--memory-snapshot", str(file)]
    trial = _find(
        json.loads(run("-m", "engine", "measure", *small_model, *limit, "--json")), "failure"
    )
    assert not trial["fits"]
    assert 0 < peak_of(file) <= trial["peak_reserved_bytes"]


def test_a_script_has_a_memory_snapshot_too(tmp_path: Path) -> None:
    script, file = loop(tmp_path, made=""), tmp_path / "step.pickle"
    asked = ["measure", str(script.path), "--batch-size", "8", "--memory-snapshot", str(file)]
    trial = _find(json.loads(run("-m", "engine", *asked, "--json")), "peak_reserved_bytes")
    assert 0.8 <= peak_of(file) / trial["peak_allocated_bytes"] <= 1


def peak_of(file: Path) -> int:
    """The most bytes that a snapshot's tensors take at once."""
    (events,) = pickle.loads(file.read_bytes())["device_traces"]  # noqa: S301  # our own
    sign = {"alloc": 1, "free_requested": -1}
    peak: int = max(accumulate(sign[one["action"]] * one["size"] for one in events))
    return peak


def test_an_analysis_ends_in_a_certified_answer(small_model: list[str]) -> None:
    limit = ["--gpu", "local", "--memory-limit", LIMIT]
    result = json.loads(
        run(
            *("-m", "engine", "analyze", *small_model, *limit),
            *("--batch-multiple", "128", "--json"),
        )
    )
    fits = {trial["batch_size"]: trial["fits"] for trial in result["trials"]}
    assert fits[result["largest_batch_size"]]
    assert not fits[result["next_batch_size"]]
    assert result["next_batch_size_fails"]
    assert result["source"] == "measured"
    assert result["timeline"]
    ran_on = result["measured_on"]
    assert ran_on["device"] == "NVIDIA A10"
    assert (ran_on["driver"], ran_on["power_limit_watts"]) == ("580.95", 150)
    failed = next(trial for trial in result["trials"] if not trial["fits"])
    assert failed["failure"].startswith("out of memory in ")


def test_a_script_for_cuda_alone_is_analysed_on_the_gpu_that_is_here(tmp_path: Path) -> None:
    """It is traced as on that GPU, from the search for its loaders on; on a CPU it would warn.

    Its loader has workers, which hand over their tensors by sockets.
    """
    script = loop(tmp_path, made="torch.autocast('cuda', dtype=torch.bfloat16).__enter__()")
    asked = ("--gpu", "local", "--memory-limit", "384MiB", "--batch-multiple", "1024", "--json")
    result = json.loads(run("-m", "engine", "analyze", str(script.path), *asked))
    assert result["current_batch_size"] == 8
    assert result["next_batch_size_fails"]
    assert result["gpu"]["name"].startswith("NVIDIA A10")


def _find(value: Any, name: str) -> dict[str, Any]:
    """The first object with a field of that name."""
    if isinstance(value, dict) and name in value:
        return value
    parts = value.values() if isinstance(value, dict) else value
    found = (_find(part, name) for part in parts if isinstance(part, (dict, list)))
    return next((one for one in found if one), {})


def test_every_answer_of_a_trials_process_works_on_cuda() -> None:
    code = """
        from dataclasses import replace

        from engine.measurement import child, cuda
        from engine.measurement.environment import measured_on
        from engine.measurement.protocol import TrialOrder
        from engine.tests.shared import SMALL_BERT
        from engine.interface.workload import Workload

        order = TrialOrder(SMALL_BERT, 2)
        assert cuda.facts().kind == "cuda"
        trial = cuda.run_trial(order)
        step = cuda.record(order)
        assert sum(step.breakdown.values()) <= trial.peak_allocated_bytes
        for category in ("parameters", "optimizer_state", "activations"):
            assert step.breakdown[category] > 0, category
        phases = list(dict.fromkeys(point.phase for point in step.timeline))
        assert phases[:4] == ["inputs", "forward", "backward", "optimizer"], phases
        assert measured_on(order).compute_capability == "8.6"

        mixed = Workload.parse(SMALL_BERT.to_dict() | {"precision": "fp16-mixed"})
        assert cuda.run_trial(replace(order, workload=mixed)).fits

        failed = cuda.run_trial(replace(order, memory_limit_bytes=2**28 + 2**22, batch_size=64))
        assert not failed.fits
        assert failed.failure.startswith("out of memory in the "), failed.failure
        """
    run("-c", dedent(code))


def test_weights_drawn_on_the_gpu_take_what_copied_ones_take() -> None:
    code = """
        from contextlib import nullcontext

        import torch

        from engine.measurement import child
        from engine.measurement.weights import DrawingLater
        from engine.step.training import build_model
        from engine.tests.shared import SMALL_BERT

        def peaks(drawing):
            torch.cuda.memory._record_memory_history("all")
            with drawing:
                model = build_model(SMALL_BERT).to("cuda")
            assert all(one.is_cuda and one.isfinite().all() for one in model.parameters())
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            return [entry["size"] for entry in events if entry["action"] == "alloc"][:200]

        moved, drawn = peaks(nullcontext()), peaks(DrawingLater())
        count = len(list(build_model(SMALL_BERT).parameters()))
        assert drawn[:count] == moved[:count], (drawn[:count], moved[:count])
        """
    run("-c", dedent(code))
