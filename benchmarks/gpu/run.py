"""The plan, most important items first, and the run that works through it within a time budget.

Every item can be left for a later run. Results are saved after each trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from benchmarks.gpu.results import Results, Row, Search, format_capacity
from benchmarks.gpu.workloads import BY_NAME, FIRST, Benchmarked
from engine.answer.search import find_largest
from engine.core.errors import EngineError
from engine.interface.trial import Trial
from engine.measurement.device import limited_device
from engine.measurement.parent import OutOfTime
from engine.measurement.protocol import TrialOrder

_GIB = 2**30
_MIB = 2**20


class Kind(StrEnum):
    """Kinds of items."""

    SIZES = "sizes"
    LIMIT = "limit"
    SEARCH = "search"


@dataclass(frozen=True)
class Item:
    """One item of the plan.

    Attributes:
        kind: Trials of given batch sizes, a certified limit, or one tool's search.
        name: Name of the workload.
        batch_sizes: Batch sizes of the trials.
        limit_bytes: The capacity to emulate; ``None`` for the whole device.
        tool: The tool that searches.
    """

    kind: Kind
    name: str
    batch_sizes: tuple[int, ...] = ()
    limit_bytes: int | None = None
    tool: str = ""

    def __str__(self) -> str:
        match self.kind:
            case Kind.SIZES:
                return f"{self.name}: batch {' and '.join(map(str, self.batch_sizes))}"
            case Kind.LIMIT:
                return f"{self.name}: largest batch on {format_capacity(self.limit_bytes)}"
        return f"{self.name}: search on {format_capacity(self.limit_bytes)} by {self.tool}"

    def done(self, results: Results) -> bool:
        match self.kind:
            case Kind.SIZES:
                tried = {t.batch_size for t in results.trials(self.name, self.limit_bytes)}
                return tried >= set(self.batch_sizes)
            case Kind.LIMIT:
                return results.largest(self.name, self.limit_bytes) is not None
        wanted = (self.name, self.limit_bytes, self.tool)
        # A tool that was missing may have been installed since.
        return any(
            (done.workload, done.limit_bytes, done.tool) == wanted and done.version is not None
            for done in results.searches
        )


@dataclass(frozen=True)
class Capacities:
    """The capacities to emulate.

    Attributes:
        first: Measured for every workload, before the others.
        others: The rest; ``None`` stands for the whole device.
        searched: Capacities at which the tools' searches are timed, on the first workload.
    """

    first: int
    others: tuple[int | None, ...]
    searched: int


ON_A_GPU = Capacities(24 * _GIB, (None, 16 * _GIB, 80 * _GIB, 40 * _GIB), 16 * _GIB)
QUICK_ON_A_GPU = Capacities(_GIB, (), _GIB)
QUICK_ON_A_CPU = Capacities(20 * _MIB, (), 20 * _MIB)


def plan(
    workloads: Sequence[Benchmarked],
    capacities: Capacities,
    tools: Sequence[str],
    total_bytes: int,
) -> list[Item]:
    """The items, in order.

    First every workload at two batch sizes and one capacity, then the searches, then the first
    three workloads in full, then the rest: whenever time runs out, the results cover as much as
    possible.

    Args:
        workloads: Workloads to measure.
        capacities: Capacities to emulate; those above the device's memory are left out.
        tools: Names of the searches.
        total_bytes: The device's memory.
    """

    def limits(some: Sequence[Benchmarked], sizes: Sequence[int | None]) -> list[Item]:
        return [
            Item(Kind.LIMIT, one.name, limit_bytes=limit)
            for limit in sizes
            if limit is None or limit < total_bytes
            for one in some
        ]

    first, rest = workloads[:FIRST], workloads[FIRST:]
    searches = [
        Item(Kind.SEARCH, one.name, limit_bytes=capacities.searched, tool=tool)
        for one in workloads[:1]
        for tool in tools
        if capacities.searched < total_bytes
    ]
    items = [
        *(Item(Kind.SIZES, one.name, one.batch_sizes) for one in workloads),
        *limits(workloads, [capacities.first]),
        *limits(workloads[:1], [capacities.searched]),
        *searches,
        *limits(first, capacities.others),
        *limits(rest, capacities.others),
    ]
    return list(dict.fromkeys(items))


class Budget:
    """A time budget in seconds.

    Args:
        seconds: The whole budget.
        clock: Seconds since any moment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._begin = clock()

    @property
    def spent(self) -> float:
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Negative once the budget is overdrawn."""
        return self._seconds - self.spent


MIN_SECONDS = 5.0
"""With less time left, no item is started."""
TRIAL_SECONDS = 90.0
"""A trial that takes longer is considered hung."""
SEARCH_SECONDS = 180.0
"""As above, for a tool's whole search."""


class Executor(Protocol):
    """Carries out items. Each call runs processes and may raise ``OutOfTime``."""

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        """One trial."""

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        """The largest batch predicted to fit; ``None`` if not predicted."""

    def search(self, row: Search, deadline_seconds: float) -> Search:
        """One tool's search."""


@dataclass
class Run:
    """One run over a plan.

    Attributes:
        results: Results of earlier runs; new ones are added.
        executor: Runs trials and searches.
        budget: The time left.
        save: Called whenever the results have changed.
        log: Receives a line about each step.
    """

    results: Results
    executor: Executor
    budget: Budget
    save: Callable[[], None]
    log: Callable[[str], None]

    def work_through(self, items: Sequence[Item]) -> None:
        """Do every item that the results lack, in order; a failed one does not stop the rest.

        Items without enough time left are listed in the results, failed ones with their error. The
        next run tries both again.
        """
        self.results.left_out, self.results.failures = [], {}
        for item in items:
            if item.done(self.results):
                continue
            if why := self._hopeless(item):
                self.results.failures[str(item)] = why
                continue
            if self.budget.left < MIN_SECONDS:
                self.results.left_out.append(str(item))
                continue
            self.log(f"{item} ({self.budget.left:.0f} s left)")
            try:
                self._do(item)
            except OutOfTime as error:
                if self.budget.left < MIN_SECONDS:
                    self.results.left_out.append(str(item))
                else:
                    self._failed(item, error)
            except EngineError as error:
                self._failed(item, error)
            self.save()
        self.save()

    def _failed(self, item: Item, error: EngineError) -> None:
        self.results.failures[str(item)] = str(error)
        self.log(f"  failed: {error}")

    def _hopeless(self, item: Item) -> str:
        """Why an item is not worth trying: its workload has failed before and never run."""
        if any(row.workload == item.name for row in self.results.rows):
            return ""
        for failed in self.results.failures:
            if failed.startswith(f"{item.name}: "):
                return f"not tried, since no trial of this workload runs (see {failed})"
        return ""

    def _do(self, item: Item) -> None:
        match item.kind:
            case Kind.SIZES:
                for batch_size in item.batch_sizes:
                    self._trial(item, batch_size)
            case Kind.LIMIT:
                self._certify(item)
            case Kind.SEARCH:
                self._search(item)

    def _trial(self, item: Item, batch_size: int) -> Trial:
        """Run a trial unless its result is known."""
        for known in self.results.trials(item.name, item.limit_bytes):
            if known.batch_size == batch_size:
                return known
        order = TrialOrder(BY_NAME[item.name].workload, batch_size, item.limit_bytes)
        begin = time.monotonic()
        trial = self.executor.measure(order, self._within(TRIAL_SECONDS))
        seconds = time.monotonic() - begin
        self.results.rows.append(Row(item.name, item.limit_bytes, trial, seconds))
        self.save()
        self.log(f"  {_format(trial)}, {seconds:.1f} s")
        return trial

    def _certify(self, item: Item) -> None:
        name, limit = item.name, item.limit_bytes
        facts = self.results.device.facts
        usable = limited_device(facts, limit or facts.total_bytes).usable_bytes
        at_limit = self.results.trials(name, limit)
        # A trial that stayed below this limit under another one would be the same under this.
        elsewhere = [
            row.measured
            for row in self.results.rows
            if row.workload == name
            and row.limit_bytes != limit
            and 0 < _bytes_held(row.measured) <= usable
        ]
        outcome = find_largest(
            lambda batch_size: self._trial(item, batch_size),
            guess=self._guess(name, limit),
            limit_bytes=usable,
            known=[*at_limit, *elsewhere],
        )
        for batch_size in (outcome.largest_batch_size, outcome.next_batch_size):
            if batch_size > 0:
                self._trial(item, batch_size)

    def _guess(self, name: str, limit_bytes: int | None) -> int | None:
        """The predicted largest batch, corrected by the prediction's error at another capacity.

        This only saves trials; the stored prediction is not corrected.
        """
        predicted = self.executor.guess(name, limit_bytes, self._within(TRIAL_SECONDS))
        certified = {
            row.limit_bytes: self.results.largest(name, row.limit_bytes)
            for row in self.results.rows
            if row.workload == name
        }
        for limit, found in reversed(certified.items()):
            there = self.executor.guess(name, limit, self._within(TRIAL_SECONDS)) if found else None
            if predicted and found and there:
                return round(predicted * found / there)
        return predicted

    def _search(self, item: Item) -> None:
        if item.limit_bytes is None:
            raise ValueError("a search needs a capacity")
        wanted = Search(item.tool, None, item.name, item.limit_bytes)
        found = self.executor.search(wanted, self._within(SEARCH_SECONDS))
        same = (found.tool, found.workload, found.limit_bytes)
        kept = [s for s in self.results.searches if (s.tool, s.workload, s.limit_bytes) != same]
        self.results.searches = [*kept, found]
        if found.version is None:
            self.log("  not installed")
        else:
            self.log(f"  {found.answer:,} in {found.trials:,} trials, {found.seconds:.1f} s")

    def _within(self, seconds: float) -> float:
        return max(min(seconds, self.budget.left), 0.0)


def _bytes_held(trial: Trial) -> int:
    """Bytes that a trial held without pressure on memory; 0 if unknown."""
    if not trial.fits or trial.alloc_retries:
        return 0
    return trial.peak_reserved_bytes or trial.peak_allocated_bytes or 0


def _format(trial: Trial) -> str:
    if not trial.fits:
        return f"batch {trial.batch_size:,} does not fit ({trial.failure})"
    gib = (trial.peak_allocated_bytes or 0) / 2**30
    step = 1000 * (trial.step_seconds or 0)
    return f"batch {trial.batch_size:,} fits: {gib:.2f} GiB allocated, {step:,.1f} ms a step"
