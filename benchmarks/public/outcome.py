"""One public script: predicted as a user does, and judged."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.public.scripts import PublicScript

ROOT = Path(__file__).parents[2]
GPU = "a10"
LIMIT_SECONDS = 600
LATE = 124
"""Status of a command that was stopped, as ``timeout`` has it."""
EXACT = 0.01
"""Share of the peak of real steps that a prediction may be off by, on the CPU."""


class Verdict(StrEnum):
    """Verdict on a script."""

    PREDICTED = "predicted"
    REFUSED = "refused in words"
    REFUSED_WRONGLY = "refused wrongly"
    WRONG = "wrong"
    NO_ANSWER = "no answer in time"


@dataclass(frozen=True)
class Outcome:
    """Result of one script.

    Attributes:
        name, repository, path: Those of the script.
        verdict: Judgement.
        seconds: Time of the prediction, from the command to the answer.
        cpu_seconds: Processor time of it, which hardly depends on what else the machine does.
        gpu_bytes: Predicted peak allocated on the GPU; ``None`` if there is none.
        refused: Reason why there is none.
        predicted_bytes, measured_bytes: Peaks on the CPU, of the trace and of real steps; ``None``
            where these were not compared.
        not_compared: Reason why not.
    """

    name: str
    repository: str
    path: str
    verdict: Verdict
    seconds: float
    cpu_seconds: float
    gpu_bytes: int | None = None
    refused: str = ""
    predicted_bytes: int | None = None
    measured_bytes: int | None = None
    not_compared: str = ""


def judge(
    script: PublicScript,
    checkouts: Path,
    data: Path,
    *,
    compares: bool,
    limit: float = LIMIT_SECONDS,
) -> Outcome:
    """Predict a script, and compare the trace with real steps on the CPU.

    Args:
        script: The script.
        checkouts: Folder of the repositories.
        data: Folder of the stand-ins.
        compares: Whether to run real steps as well.
        limit: Seconds for the answer, and again for the real steps.
    """
    _link(script, checkouts, data)
    begun, used = time.perf_counter(), _cpu_seconds()
    ran = _run(script, checkouts, data, limit, "-m", "engine", *command(script, checkouts, data))
    seconds = round(time.perf_counter() - begun, 1)
    found: dict[str, Any] = {"cpu_seconds": round(_cpu_seconds() - used, 1)}
    if ran.returncode:
        refused = _error(ran.stderr)
        verdict = _verdict_without_answer(script, ran.returncode, refused)
        return _outcome(script, verdict, seconds, refused=refused, **found)
    found["gpu_bytes"] = json.loads(ran.stdout)["peak_allocated_bytes"]
    if not (compares and script.runs):
        return _outcome(script, Verdict.PREDICTED, seconds, **found)
    peaks = _run(
        script, checkouts, data, limit, "-m", "benchmarks.public", "--bytes-of", script.name,
        *("--checkouts", str(checkouts), "--data", str(data)),
    )  # fmt: skip
    if peaks.returncode:
        reason = _error(peaks.stderr)
        return _outcome(script, Verdict.PREDICTED, seconds, not_compared=reason, **found)
    compared = json.loads(peaks.stdout)
    predicted, measured = compared["predicted"], compared["measured"]
    off = abs(predicted - measured) > EXACT * measured
    return _outcome(
        script, Verdict.WRONG if off else Verdict.PREDICTED, seconds,
        predicted_bytes=predicted, measured_bytes=measured, **found,
    )  # fmt: skip


def _verdict_without_answer(script: PublicScript, status: int, refused: str) -> Verdict:
    if status == LATE:
        return Verdict.NO_ANSWER
    expected = bool(script.refused) and script.refused in refused
    return Verdict.REFUSED if expected else Verdict.REFUSED_WRONGLY


def _cpu_seconds() -> float:
    """Processor time of the commands that have ended, with what they started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(script: PublicScript, checkouts: Path, data: Path) -> list[str]:
    """The arguments that a user would type after ``memorymark``."""
    file = str(script.file(checkouts))
    words = ["predict", file, "--batch-size", str(script.batch_size), "--gpu", GPU]
    if script.batch_flag:
        words.append(f"--batch-flag={script.batch_flag}")
    if script.batch_env:
        words.append(f"--batch-env={script.batch_env}")
    return [*words, "--json", "--", *script.words(data)]


def _outcome(script: PublicScript, verdict: Verdict, seconds: float, **found: Any) -> Outcome:
    return Outcome(script.name, script.repository, script.path, verdict, seconds, **found)


def _link(script: PublicScript, checkouts: Path, data: Path) -> None:
    """Put the stand-ins in its repository that it looks for there."""
    for place, stand_in in script.links.items():
        link = checkouts / script.repository / place
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(data / stand_in)


def _run(
    script: PublicScript, checkouts: Path, data: Path, limit: float, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run something of this repository where a script finds ``../data``, or ``data``."""
    folder = data / "beside" / "run"
    folder.mkdir(parents=True, exist_ok=True)
    places = {
        folder.parent / "data": data / "mnist",
        folder / "data": data / "mnist",
        folder / "MNIST": data / "lightning-mnist" / "MNIST",
    }
    for link, stand_in in places.items():
        if not link.exists():
            link.symlink_to(stand_in)
    own = "" if script.imports is None else str(checkouts / script.repository / script.imports)
    path = os.pathsep.join(filter(None, (str(ROOT), own, os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path, **script.variables(data)}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            stdout, stderr = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the loaders that it has started
            late = f"no answer within {limit:g} s"
            return subprocess.CompletedProcess(arguments, LATE, "", late)
    return subprocess.CompletedProcess(arguments, running.returncode, stdout, stderr)


def _error(stderr: str) -> str:
    """The error that a command wrote last, or else its last line."""
    _, found, error = stderr.rpartition("error: ")
    last = stderr.strip().rpartition("\n")[2]
    return " ".join(error.split()) if found else last or "it ended without a word"


def summary(outcomes: Sequence[Outcome]) -> dict[Verdict, int]:
    """Count of each verdict, those of none included."""
    return {verdict: sum(one.verdict is verdict for one in outcomes) for verdict in Verdict}
