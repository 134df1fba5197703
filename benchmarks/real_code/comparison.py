"""One script: predicted for a GPU as a user does, and traced and run on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real_code.cases import Case
from engine.script.program import Program

ROOT = Path(__file__).parents[2]
GPU = "a10"

LINES_ADDED = 0
"""Lines a script needs to be predicted: none. It is named on the command line as it is."""


@dataclass(frozen=True)
class Comparison:
    """The comparison for one script.

    Attributes:
        name, about: Those of the case.
        batch_size: Samples per step.
        lines: Lines that a person adds to the script.
        seconds: Time of the prediction for the GPU, from the command to the answer.
        gpu_bytes: Predicted peak allocated there; ``None`` if there is no prediction.
        refused: Reason why there is none.
        predicted_bytes: The peak of the trace for the CPU; ``None`` if there is none.
        measured_bytes: The peak of real steps there; ``None`` if none were run.
        failure: Reason why one of these two is missing.
    """

    name: str
    about: str
    batch_size: int
    lines: int
    seconds: float
    gpu_bytes: int | None
    refused: str
    predicted_bytes: int | None
    measured_bytes: int | None
    failure: str

    @property
    def is_equal(self) -> bool:
        """Whether the peak on the CPU was predicted to the byte, if steps were run at all."""
        return not self.failure and self.predicted_bytes == self.measured_bytes


def compare(case: Case, python: Path) -> Comparison:
    """Predict a script for the GPU, and compare trace and real steps on the CPU.

    Args:
        case: The script.
        python: An interpreter with what it imports.
    """
    with tempfile.TemporaryDirectory() as folder:  # what the script writes goes there
        begun = time.perf_counter()
        on_gpu = _run(python, folder, "-m", "engine", *_predict(case))
        seconds = time.perf_counter() - begun
        on_cpu = None
        if case.runs:
            on_cpu = _run(python, folder, "-m", "benchmarks.real_code", "--bytes-of", case.name)
    trial = _answer(on_gpu)
    peaks = {} if on_cpu is None else _answer(on_cpu)
    return Comparison(
        name=case.name,
        about=case.about,
        batch_size=case.batch_size,
        lines=LINES_ADDED,
        seconds=round(seconds, 1),
        gpu_bytes=trial.get("peak_allocated_bytes"),
        refused="" if trial else _last_line(on_gpu),
        predicted_bytes=peaks.get("predicted"),
        measured_bytes=peaks.get("measured"),
        failure="" if on_cpu is None or peaks else _last_line(on_cpu),
    )


def peaks_on_the_cpu(case: Case) -> dict[str, int]:
    """As :func:`peaks_of`, for the program of a case."""
    return peaks_of(case.program, case.batch_size)


def peaks_of(program: Program, batch_size: int) -> dict[str, int]:
    """The peaks of real steps and of the trace, in bytes; in this process and forks of it.

    Args:
        program: The program to run.
        batch_size: Samples per step.

    Raises:
        EngineError: If the script fails, or cannot be traced.
    """
    # They load torch, which only the interpreter of the script needs.
    from engine.interface.trial import Trial
    from engine.measurement import cpu
    from engine.measurement.programs import run_program
    from engine.measurement.protocol import TrialOrder
    from engine.script.process.fork import Done, in_a_fork
    from engine.script.trace import found_loaders, trace_script

    if program.automatic:
        program, _ = found_loaders(program, None)
    predicted, _ = trace_script(program, batch_size, None).peak_by_category()
    order = TrialOrder(program, batch_size)

    def run(done: Done[Trial]) -> None:
        run_program(order, cpu.ProgramWatch(order), done)

    measured = in_a_fork(run).peak_allocated_bytes
    if measured is None:
        raise ValueError(f"{program.name}: a trial on the CPU without a peak")
    return {"predicted": predicted, "measured": measured}


def _predict(case: Case) -> list[str]:
    """The arguments of the command that a user would type."""
    command = ["predict", str(case.path), "--batch-size", str(case.batch_size), "--gpu", GPU]
    if case.batch_flag:
        command.append(f"--batch-flag={case.batch_flag}")
    if case.batch_env:
        command.append(f"--batch-env={case.batch_env}")
    return [*command, "--json", "--", *case.arguments]


def _run(python: Path, folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run something of this repository from another folder."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [os.fspath(python), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _answer(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed; empty if it failed."""
    found: dict[str, Any] = {} if ran.returncode else json.loads(ran.stdout)
    return found


def _last_line(ran: subprocess.CompletedProcess[str]) -> str:
    return ran.stderr.strip().rpartition("\n")[2] or f"status {ran.returncode}"


def this_python() -> Path:
    """The interpreter that runs this."""
    return Path(sys.executable)
