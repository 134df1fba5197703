"""The path from the API to a certified answer on CUDA, tried on a GPU that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.gpu_node import answered
from e2e.running import ROOT
from engine.client import Analysis
from engine.models.presets import PRESETS
from engine.tests.cuda_stand_in import FOLDER
from engine.tests.small import made_small

GIB = 2**30


def trial(batch_size: int, *, fits: bool, source: str = "measured") -> dict[str, Any]:
    return {
        "batch_size": batch_size,
        "fits": fits,
        "source": source,
        "peak_reserved_bytes": batch_size * GIB,
    }


def analysis(*trials: dict[str, Any]) -> Analysis:
    result = {"trials": trials, "next_batch_size": 9}
    return Analysis(
        *(1, "", "ada", "succeeded", "bert", "NVIDIA A10", 4, 8, 8, 1.0, "measured", "", "", False),
        tags=(),
        facts={"result": result},
    )


def test_an_answer_is_certified_by_measured_trials_on_both_sides() -> None:
    found = answered("BERT", analysis(trial(8, fits=True), trial(9, fits=False)), 12.34)
    assert found.certified
    assert (found.trials, found.seconds) == (2, 12.3)
    assert (found.largest_batch_size, found.measured_reserved_bytes) == (8, 8 * GIB)


@pytest.mark.parametrize(
    "trials",
    [
        [trial(8, fits=True)],
        [trial(8, fits=True), trial(9, fits=True)],
        [trial(8, fits=True), trial(9, fits=False, source="predicted")],
        [],
    ],
)
def test_without_both_sides_it_is_not(trials: list[dict[str, Any]]) -> None:
    assert not answered("BERT", analysis(*trials), 1.0).certified


@pytest.mark.slow
def test_the_command_finds_a_certified_answer_through_the_site(tmp_path: Path) -> None:
    asked = {
        "small BERT": {
            "model": "small-bert",
            "config": made_small(PRESETS["bert"].config()),
            "sequence_length": 8,
            "batch_multiple": 128,
            "memory_limit_bytes": GIB // 2,
        }
    }
    analyses, output = tmp_path / "analyses.json", tmp_path / "found.json"
    analyses.write_text(json.dumps(asked))
    paths = (FOLDER, ROOT / "drills" / "driver", ROOT)
    own = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "DRILL_GPU_UUID": "GPU-123e4567-e89b-12d3-a456-426614174000",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "e2e.gpu_node"),
            *("--analyses", str(analyses), "--output", str(output)),
        ],
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(output.read_text())
    assert found["certified"]
    assert found["software"]["device"] == "NVIDIA A10"
    assert found["largest_batch_size"] % 128 == 0
