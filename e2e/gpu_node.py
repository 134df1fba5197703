"""The whole path on a real GPU: ``python -m e2e.gpu_node``, after ``python -m benchmarks.gpu run``.

It starts a site and its worker with their own SQLite database, as ``memorymark site`` does, creates
a member with a token, submits three analyses of this machine's GPU by the API, and waits until each
has a certified answer. It prints what they found and writes it to a file. It fails if one has none.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rich.console import Console
from rich.table import Table

from e2e.running import ROOT, STOP_SECONDS, free_port
from engine.client import Analysis, Lab, LabError, Refused

GIB = 2**30
MEMBER = "gpu-node"
START_SECONDS = 300.0
"""Start timeout of the database, the site and the worker, on a busy machine."""
ANSWER_SECONDS = 1800.0

ANALYSES: Mapping[str, Mapping[str, Any]] = {
    "BERT within 22.07 GiB, by 8": {
        "model": "bert",
        "current_batch_size": 16,
        "batch_multiple": 8,
        "memory_limit_bytes": int(22.07 * GIB),
    },
    "ResNet-50 in bf16": {
        "model": "resnet",
        "precision": "bf16-mixed",
        "current_batch_size": 32,
    },
    "GPT-2": {"model": "gpt2", "current_batch_size": 8},
}

_SETTINGS = """
from memorymark_site.settings import *
STATIC_ROOT = {static!r}
"""


@dataclass(frozen=True)
class Answered:
    """The outcome of an analysis.

    Attributes:
        name: A name in :data:`ANALYSES`.
        status: The analysis's status; ``succeeded`` with an answer.
        certified: Whether the largest batch fitted and the next one did not, both measured.
        trials: Number of batch sizes tried.
        seconds: Time from submitting it to its answer; the first one's includes the worker's start.
        largest_batch_size: Measured; ``None`` without an answer.
        measured_reserved_bytes: Peak reserved at the largest batch, measured.
        software: Versions by package, with those of the device and its driver.
        failure: Reason why there is no answer; empty with one.
        caveats: Assumptions that the answer states.
    """

    name: str
    status: str
    certified: bool
    trials: int
    seconds: float
    largest_batch_size: int | None
    measured_reserved_bytes: int | None
    software: Mapping[str, Any]
    failure: str
    caveats: Sequence[str]


def main(arguments: list[str] | None = None) -> int:
    """Run the analyses; returns 1 if one has no certified answer."""
    options = _parser().parse_args(arguments)
    wanted = json.loads(options.analyses.read_text()) if options.analyses else ANALYSES
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as lab:
        found = [answer(lab, name, fields) for name, fields in wanted.items()]
    Console().print(table(found))
    if options.output:
        options.output.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return 0 if all(one.certified for one in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.gpu_node", description=__doc__)
    parser.add_argument("--output", type=Path, help="write what was found here, as JSON")
    parser.add_argument(
        "--analyses", type=Path, help="a JSON file of other analyses: their fields by name"
    )
    return parser


@contextmanager
def site(folder: Path) -> Iterator[Lab]:
    """A site and its worker on this machine, used as a member.

    Args:
        folder: An empty one, for the database and the output.

    Raises:
        LabError: If it does not come up; the message has its output.
    """
    port = str(free_port())
    (folder / "gpu_node_settings.py").write_text(_SETTINGS.format(static=str(folder / "static")))
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "gpu_node_settings",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "MEMORYMARK_DATA_DIR": str(folder / "data"),
        "DATABASE_URL": "",
        "HOST": "127.0.0.1",
        "PORT": port,
    }
    output = folder / "output.txt"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "memorymark_site"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        member = until(lambda: _token(environment), START_SECONDS)
        if not member:
            raise LabError(f"The site did not come up: {output.read_text(errors='replace')}")
        yield Lab(f"http://127.0.0.1:{port}", member)
    finally:
        _end(process)


def _token(environment: Mapping[str, str]) -> str:
    """A token of a new member; empty while there is no database yet."""
    for words in (["addmember", MEMBER, "--generate"], ["token", MEMBER]):
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout.strip() if done.returncode == 0 else ""


def answer(lab: Lab, name: str, fields: Mapping[str, Any]) -> Answered:
    """Submit an analysis of this machine's GPU, and wait for its answer."""
    begin = monotonic()
    submitted = until(lambda: _submitted(lab, fields), START_SECONDS) or lab.analyze(
        gpu="local", **fields
    )
    found = lab.wait(submitted.id, ANSWER_SECONDS)
    return answered(name, found, monotonic() - begin)


def _submitted(lab: Lab, fields: Mapping[str, Any]) -> Analysis | None:
    """The analysis; ``None`` while the site or the node is not there yet."""
    try:
        return lab.analyze(gpu="local", **fields)
    except Refused as error:
        if "gpu" not in error.fields:
            raise
    except LabError:
        pass
    return None


def answered(name: str, found: Analysis, seconds: float) -> Answered:
    """The outcome of an analysis, from the API's facts about it."""
    result: Mapping[str, Any] = found.facts.get("result") or {}
    trials = {one["batch_size"]: one for one in result.get("trials", [])}
    largest, after = found.largest_batch_size, result.get("next_batch_size")
    measured = [trials.get(size, {}) for size in (largest, after)]
    sides = [one.get("fits") for one in measured if one.get("source") == "measured"]
    ran_on = result.get("measured_on") or {}
    return Answered(
        name=name,
        status=found.status,
        certified=sides == [True, False],
        trials=len(trials),
        seconds=round(seconds, 1),
        largest_batch_size=largest,
        measured_reserved_bytes=measured[0].get("peak_reserved_bytes"),
        software={
            name: ran_on[name]
            for name in ("device", "torch", "transformers", "cuda", "cudnn", "driver")
            if ran_on.get(name)
        },
        failure=found.failure,
        caveats=result.get("caveats", []),
    )


def table(found: Sequence[Answered]) -> Table:
    """The outcomes as a table for the terminal."""
    shown = Table(title="Analyses by the API on this machine's GPU, measured")
    for heading in (
        *("analysis", "certified", "trials", "seconds", "largest batch"),
        *("peak reserved (GiB)", "failure"),
    ):
        shown.add_column(heading)
    for one in found:
        shown.add_row(
            one.name,
            "yes" if one.certified else "no",
            str(one.trials),
            f"{one.seconds:.0f}",
            _number(one.largest_batch_size),
            _gib(one.measured_reserved_bytes),
            one.failure,
        )
    return shown


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _gib(value: int | None) -> str:
    return "" if value is None else f"{value / GIB:.3f}"


def until(look: Callable[[], Any], seconds: float) -> Any:
    """Look until there is something, or time is up; returns what was seen last."""
    end = monotonic() + seconds
    while not (seen := look()) and monotonic() < end:
        sleep(0.5)
    return seen


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the site, its worker and their engines."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
