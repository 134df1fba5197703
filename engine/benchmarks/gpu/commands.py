"""The command that measures: where the file lies, which processes run, and what is said of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotReady
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from engine.benchmarks.gpu import helpers
from engine.benchmarks.gpu.budget import Budget
from engine.benchmarks.gpu.plan import (
    ON_A_GPU,
    QUICK_ON_A_CPU,
    QUICK_ON_A_GPU,
    Capacities,
    Item,
    Kind,
    plan,
)
from engine.benchmarks.gpu.questions import Asked, Foreseen
from engine.benchmarks.gpu.results import Device, Predicted, Results, Search, go_on, save
from engine.benchmarks.gpu.run import Run
from engine.benchmarks.gpu.trials import Trials
from engine.benchmarks.gpu.workloads import BY_NAME, FULL, QUICK, chosen
from engine.errors import EngineError, InvalidInput
from engine.measurement.processes import OutOfTime
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.result import Trial

TOOLS = (
    "MemoryMark",
    "Accelerate find_executable_batch_size",
    "Lightning BatchSizeFinder, power",
    "Lightning BatchSizeFinder, binsearch",
    "linear scan by 8",
)
"""The searches that are timed, the quickest first: those of :mod:`engine.benchmarks.searchers`."""

RESULTS = Path(__file__).parents[1] / "results"
QUICK_FILE = Path(__file__).parents[3] / "var" / "gpu-benchmark-quick.json"
"""What a CPU measures is no result of a GPU: it goes where nothing is committed from."""

RESERVED_SHARE = 0.08
"""Of the budget, for the predictions at the end. Without them the file is whole all the same."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What the command line asks for.

    Attributes:
        kind: ``cuda`` or ``cpu``.
        quick: Whether small workloads take the place of the real ones.
        budget_seconds: What all of it may take.
        only: Names of workloads; empty for all.
        fresh: Whether what was measured before is thrown away.
        out: The file; ``None`` for one named after the device.
        commit: Of this repository; empty to ask git.
    """

    kind: str
    quick: bool
    budget_seconds: float
    only: tuple[str, ...] = ()
    fresh: bool = False
    out: Path | None = None
    commit: str = ""


def measure(order: Order, say: Say) -> Path:
    """Measure what the file lacks.

    Returns:
        The file.

    Raises:
        InvalidInput: If the order contradicts itself, or names no workload.
        EngineError: If there is no such device, or the file is of another one.
    """
    if order.kind == "cpu" and not order.quick:
        raise InvalidInput({"device": "on a CPU the workloads take hours; add --quick"})
    workloads = chosen(QUICK if order.quick else FULL, order.only)
    budget = Budget(order.budget_seconds)
    environment = _environment(order.kind)
    # The first process of a fresh machine reads PyTorch from a cold disk, which can take minutes.
    device = helpers.ask_device(environment, budget.left, order.quick)
    if device.facts.kind != order.kind:
        raise EngineError(
            "there is no CUDA GPU here; to try the flow on a CPU: --device cpu --quick"
        )
    path = order.out or _file_for(device)
    if order.fresh:
        path.unlink(missing_ok=True)
    results = go_on(path, device)
    results.device = device
    commit = order.commit or _commit()
    results.commits = list(dict.fromkeys([*results.commits, commit]))
    began = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = list(results.runs)

    def keep() -> None:
        results.runs = [*earlier, (began, round(budget.spent, 1))]
        save(path, results)

    say(f"{device.facts.name}; results in {path}")
    items = plan(workloads, _capacities(device), TOOLS, device.facts.total_bytes)
    working = Budget(order.budget_seconds * (1 - RESERVED_SHARE) - budget.spent)
    with _Doing(environment, device.facts, _limits(items), working) as doing:
        Run(results, doing, working, keep, say).work_off(items)
    predict(results, environment, budget.left, say)
    keep()
    _say_the_end(results, budget, say)
    return path


def predict(
    results: Results, environment: Mapping[str, str], deadline_seconds: float, say: Say
) -> None:
    """Put what this engine predicts beside everything measured; it needs no GPU.

    Args:
        results: They are changed, workload by workload.
        environment: Of the processes.
        deadline_seconds: After so long the rest stays as it is.
        say: Is told what could not be predicted.
    """
    measured = dict.fromkeys(row.workload for row in results.rows)
    names = [name for name in measured if name in BY_NAME]
    for gone in measured.keys() - BY_NAME.keys():
        say(f"{gone} is not predicted: this code has no such workload any more")
    budget = Budget(deadline_seconds)

    def ask(name: str) -> Foreseen | str:
        try:
            return helpers.ask_foresee(_everything_of(results, name), environment, budget.left)
        except EngineError as error:
            return str(error)

    with ThreadPoolExecutor(_cores(2)) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    for name, answer in answers.items():
        if isinstance(answer, str):
            say(f"{name} is not predicted: {answer}")
            continue
        asked = _everything_of(results, name)
        trials = dict(zip(asked.sizes, answer.trials, strict=True))
        results.rows = [
            replace(row, predicted=trials[row.limit_bytes, row.measured.batch_size])
            if row.workload == name
            else row
            for row in results.rows
        ]
        kept = [one for one in results.predicted if one.workload != name]
        results.predicted = kept + [
            Predicted(name, limit, largest)
            for limit, largest in zip(asked.limits, answer.largest, strict=True)
        ]


class _Doing:
    """What a run needs done, by processes: trials, searches, and guesses made meanwhile.

    Args:
        environment: Of the processes.
        facts: The device.
        limits: By workload, the capacities whose largest batch will be asked for.
        budget: When it is over, no guess is worth waiting for.
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
        # While a trial runs, most cores are left to it.
        self._trials = Trials(environment, ahead=min(3, _cores(4)))
        self._pool = ThreadPoolExecutor(_cores(4))

        def ask(asked: Asked) -> Foreseen:
            return helpers.ask_foresee(asked, environment, budget.left)

        self._guesses: dict[str, Future[Foreseen]] = {
            name: self._pool.submit(ask, Asked(dict(BY_NAME[name].fields), facts, tuple(sizes)))
            for name, sizes in limits.items()
        }

    def __enter__(self) -> _Doing:
        self._trials.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._trials.__exit__()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        return self._trials.measure(order, deadline_seconds)

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        try:
            foreseen = self._guesses[name].result(deadline_seconds)
        except NotReady as error:
            raise OutOfTime(f"{name} was not predicted in time") from error
        except OutOfTime:
            raise
        except EngineError:  # the predictions at the end say why
            return None
        return dict(zip(self._limits[name], foreseen.largest, strict=True)).get(limit_bytes)

    def search(self, row: Search, deadline_seconds: float) -> Search:
        fields = BY_NAME[row.workload].fields
        return helpers.ask_search(row, fields, self._environment, deadline_seconds)


def _everything_of(results: Results, name: str) -> Asked:
    rows = [row for row in results.rows if row.workload == name]
    sizes = dict.fromkeys((row.limit_bytes, row.measured.batch_size) for row in rows)
    limits = dict.fromkeys(row.limit_bytes for row in rows)
    certified = tuple(limit for limit in limits if results.largest(name, limit) is not None)
    return Asked(dict(BY_NAME[name].fields), results.device.facts, certified, tuple(sizes))


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


def _say_the_end(results: Results, budget: Budget, say: Say) -> None:
    for item, why in results.failures.items():
        say(f"failed: {item}: {why}")
    for tool in dict.fromkeys(s.tool for s in results.searches if s.version is None):
        say(f"skipped: {tool} is not installed")
    if results.left_out:
        say(f"left out for lack of time ({len(results.left_out)}); the same command goes on:")
    for item in results.left_out:
        say(f"  {item}")
    say(f"{len(results.rows)} trials in all; this run took {budget.spent:.0f} s")


def _environment(kind: str) -> Mapping[str, str]:
    """Of the processes that measure.

    On the CPU they are to find no GPU, and have one thread each: the tensors of the small models
    gain nothing from two that wait for each other.
    """
    on_cpu = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return os.environ | (on_cpu if kind == "cpu" else {})


def _cores(share: int) -> int:
    """One in so many of the cores; at least one."""
    return max(1, (os.cpu_count() or 1) // share)


def _file_for(device: Device) -> Path:
    if device.quick:
        return QUICK_FILE
    name = "".join(letter if letter.isalnum() else "-" for letter in device.facts.name.lower())
    version = device.ran_on.torch.partition("+")[0]
    return RESULTS / f"{name}-torch-{version}.json"


def _commit() -> str:
    """The commit of this repository; ``unknown`` where there is no git to ask."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607  # as the PATH has it
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked.stdout.strip()
