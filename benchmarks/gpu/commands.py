"""Measures what the file of results lacks, and predicts what it contains."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotReady
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu import processes
from benchmarks.gpu.processes import PredictionRequest, Predictions, run_trial
from benchmarks.gpu.results import Device, Predicted, Results, Search, resume, save
from benchmarks.gpu.run import (
    ON_A_GPU,
    QUICK_ON_A_CPU,
    QUICK_ON_A_GPU,
    Budget,
    Capacities,
    Item,
    Kind,
    Run,
    plan,
)
from benchmarks.gpu.workloads import BY_NAME, FULL, QUICK, chosen
from engine.core.errors import EngineError, InvalidInput
from engine.interface.trial import Trial
from engine.measurement.parent import OutOfTime
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.measurement.trial_process import libraries

TOOLS = (
    "MemoryMark",
    "Accelerate find_executable_batch_size",
    "Lightning BatchSizeFinder, power",
    "Lightning BatchSizeFinder, binsearch",
    "linear scan by 8",
)
"""The timed searches of :mod:`benchmarks.searchers`, fastest first."""

RESULTS = Path(__file__).parents[1] / "results"
QUICK_FILE = Path(__file__).parents[2] / "var" / "gpu-benchmark-quick.json"
"""Outside the published results, since a quick run is not evidence."""

RESERVED_SHARE = 0.08
"""Share of the budget for the predictions at the end; the file is complete without them too."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """The options of a measuring run.

    Attributes:
        kind: ``cuda`` or ``cpu``.
        quick: Whether to measure small workloads instead of the real ones.
        budget_seconds: Time budget of the whole run.
        only: Names of workloads; empty for all.
        fresh: Whether to discard earlier measurements.
        out: The file; ``None`` for one named after the device.
        commit: Commit of this repository; empty to look it up with git.
    """

    kind: str
    quick: bool
    budget_seconds: float
    only: tuple[str, ...] = ()
    fresh: bool = False
    out: Path | None = None
    commit: str = ""


def measure(order: Order, log: Log) -> Path:
    """Measure what the file lacks, and return its path.

    Raises:
        InvalidInput: If the options contradict each other, or name an unknown workload.
        EngineError: If there is no such device, or the file belongs to another one.
    """
    if order.kind == "cpu" and not order.quick:
        raise InvalidInput({"device": "on a CPU the workloads take hours; add --quick"})
    workloads = chosen(QUICK if order.quick else FULL, order.only)
    budget = Budget(order.budget_seconds)
    environment = _environment(order.kind)
    # The first process of a fresh machine reads PyTorch from a cold disk, which can take minutes.
    device = processes.describe_device(environment, budget.left, order.quick)
    if device.facts.kind != order.kind:
        raise EngineError(
            "there is no CUDA GPU here; to try the benchmark on a CPU: --device cpu --quick"
        )
    path = order.out or _file_for(device)
    if order.fresh:
        path.unlink(missing_ok=True)
    results = resume(path, device)
    results.device = device
    commit = order.commit or _commit()
    results.commits = list(dict.fromkeys([*results.commits, commit]))
    began = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = list(results.runs)

    def keep() -> None:
        results.runs = [*earlier, (began, round(budget.spent, 1))]
        save(path, results)

    log(f"{device.facts.name}; results in {path}")
    items = plan(workloads, _capacities(device), TOOLS, device.facts.total_bytes)
    working = Budget(order.budget_seconds * (1 - RESERVED_SHARE) - budget.spent)
    with _ProcessExecutor(environment, device.facts, _limits(items), working) as executor:
        Run(results, executor, working, keep, log).work_through(items)
    predict(results, environment, budget.left, log)
    keep()
    _log_summary(results, budget, log)
    return path


def predict(
    results: Results, environment: Mapping[str, str], deadline_seconds: float, log: Log
) -> None:
    """Add this engine's predictions to everything measured; it needs no GPU.

    Args:
        results: Changed in place, workload by workload.
        environment: Environment of the processes.
        deadline_seconds: After this long the rest stays as it is.
        log: Receives what could not be predicted.
    """
    measured = dict.fromkeys(row.workload for row in results.rows)
    names = [name for name in measured if name in BY_NAME]
    for gone in measured.keys() - BY_NAME.keys():
        log(f"{gone} is not predicted: this code has no such workload any more")
    budget = Budget(deadline_seconds)

    def predictions_or_error(name: str) -> Predictions | str:
        try:
            return processes.request_predictions(
                _everything_of(results, name), environment, budget.left
            )
        except EngineError as error:
            return str(error)

    with ThreadPoolExecutor(_cores(2)) as pool:
        answers = dict(zip(names, pool.map(predictions_or_error, names), strict=True))
    for name, answer in answers.items():
        if isinstance(answer, str):
            log(f"{name} is not predicted: {answer}")
            continue
        request = _everything_of(results, name)
        trials = dict(zip(request.sizes, answer.trials, strict=True))
        results.rows = [
            replace(row, predicted=trials[row.limit_bytes, row.measured.batch_size])
            if row.workload == name
            else row
            for row in results.rows
        ]
        kept = [one for one in results.predicted if one.workload != name]
        results.predicted = kept + [
            Predicted(name, limit, largest)
            for limit, largest in zip(request.limits, answer.largest, strict=True)
        ]


class _ProcessExecutor:
    """Runs trials and searches in processes, and predicts guesses in the meantime.

    Args:
        environment: Environment of the processes.
        facts: The device.
        limits: The capacities to guess the largest batch for, by workload.
        budget: Once it is spent, guesses are no longer waited for.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        facts: DeviceFacts,
        limits: Mapping[str, Sequence[int | None]],
        budget: Budget,
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._loaded = ExitStack()
        self._pool = ThreadPoolExecutor(_cores(4))

        def guess(request: PredictionRequest) -> Predictions:
            return processes.request_predictions(request, environment, budget.left)

        self._guesses: dict[str, Future[Predictions]] = {
            name: self._pool.submit(
                guess, PredictionRequest(dict(BY_NAME[name].fields), facts, tuple(sizes))
            )
            for name, sizes in limits.items()
        }

    def __enter__(self) -> _ProcessExecutor:
        self._loaded.enter_context(libraries.kept())
        return self

    def __exit__(self, *_: object) -> None:
        self._loaded.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        return run_trial(order, self._environment, deadline_seconds)

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        try:
            predicted = self._guesses[name].result(deadline_seconds)
        except NotReady as error:
            raise OutOfTime(f"{name} was not predicted in time") from error
        except OutOfTime:
            raise
        except EngineError:  # the predictions at the end report why
            return None
        return dict(zip(self._limits[name], predicted.largest, strict=True)).get(limit_bytes)

    def search(self, row: Search, deadline_seconds: float) -> Search:
        fields = BY_NAME[row.workload].fields
        return processes.time_search(row, fields, self._environment, deadline_seconds)


def _everything_of(results: Results, name: str) -> PredictionRequest:
    rows = [row for row in results.rows if row.workload == name]
    sizes = dict.fromkeys((row.limit_bytes, row.measured.batch_size) for row in rows)
    limits = dict.fromkeys(row.limit_bytes for row in rows)
    certified = tuple(limit for limit in limits if results.largest(name, limit) is not None)
    return PredictionRequest(
        dict(BY_NAME[name].fields), results.device.facts, certified, tuple(sizes)
    )


def _capacities(device: Device) -> Capacities:
    if not device.quick:
        return ON_A_GPU
    return QUICK_ON_A_GPU if device.facts.kind == "cuda" else QUICK_ON_A_CPU


def _limits(items: Iterable[Item]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {}
    for item in items:
        if item.kind is Kind.LIMIT:
            found.setdefault(item.name, []).append(item.limit_bytes)
    return found


def _log_summary(results: Results, budget: Budget, log: Log) -> None:
    for item, why in results.failures.items():
        log(f"failed: {item}: {why}")
    for tool in dict.fromkeys(s.tool for s in results.searches if s.version is None):
        log(f"skipped: {tool} is not installed")
    if results.left_out:
        log(f"left out for lack of time ({len(results.left_out)}); the same command resumes:")
    for item in results.left_out:
        log(f"  {item}")
    log(f"{len(results.rows)} trials in all; this run took {budget.spent:.0f} s")


def _environment(kind: str) -> Mapping[str, str]:
    """The environment of the measuring processes.

    On the CPU they must not find a GPU, and have one thread each: the tensors of the small models
    gain nothing from two that wait for each other.
    """
    on_cpu = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return os.environ | (on_cpu if kind == "cpu" else {})


def _cores(share: int) -> int:
    """``1 / share`` of the cores, at least one."""
    return max(1, (os.cpu_count() or 1) // share)


def _file_for(device: Device) -> Path:
    if device.quick:
        return QUICK_FILE
    name = "".join(letter if letter.isalnum() else "-" for letter in device.facts.name.lower())
    version = device.ran_on.torch.partition("+")[0]
    return RESULTS / f"{name}-torch-{version}.json"


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607  # as the PATH has it
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
