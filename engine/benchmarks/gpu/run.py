"""Works the plan off: item by item, within the budget, what is found saved after each trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.answer.search import find_largest
from engine.benchmarks.gpu.budget import Budget
from engine.benchmarks.gpu.plan import Item, Kind
from engine.benchmarks.gpu.results import Results, Row, Search
from engine.benchmarks.gpu.workloads import BY_NAME
from engine.errors import EngineError
from engine.measurement.device import limited_device
from engine.measurement.processes import OutOfTime
from engine.measurement.protocol import TrialOrder
from engine.result import Trial

LEAST_SECONDS = 5.0
"""With less left no item is begun."""
TRIAL_SECONDS = 90.0
"""A trial that takes longer hangs."""
SEARCH_SECONDS = 180.0
"""The same of a tool's whole search."""


class Doing(Protocol):
    """What the items need done; each call runs processes, and may end by ``OutOfTime``."""

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        """One trial."""

    def guess(self, name: str, limit_bytes: int | None, deadline_seconds: float) -> int | None:
        """The largest batch predicted to fit; ``None`` where it is not predicted."""

    def search(self, row: Search, deadline_seconds: float) -> Search:
        """One tool's search."""


@dataclass
class Run:
    """One run over a plan.

    Attributes:
        results: What there is already; it grows.
        doing: Does the work.
        budget: What time is left for it.
        save: Called whenever the results have changed.
        say: Is told of each step, in words.
    """

    results: Results
    doing: Doing
    budget: Budget
    save: Callable[[], None]
    say: Callable[[str], None]

    def work_off(self, items: Sequence[Item]) -> None:
        """Do every item that the results lack, in order; one that fails does not stop the rest.

        An item for which no time is left is named in the results; so is one that failed, with its
        error. Both are tried again by the next run.
        """
        self.results.left_out, self.results.failures = [], {}
        for item in items:
            if item.done(self.results):
                continue
            if why := self._hopeless(item):
                self.results.failures[str(item)] = why
                continue
            if self.budget.left < LEAST_SECONDS:
                self.results.left_out.append(str(item))
                continue
            self.say(f"{item} ({self.budget.left:.0f} s left)")
            try:
                self._do(item)
            except OutOfTime as error:
                if self.budget.left < LEAST_SECONDS:
                    self.results.left_out.append(str(item))
                else:
                    self._failed(item, error)
            except EngineError as error:
                self._failed(item, error)
            self.save()
        self.save()

    def _failed(self, item: Item, error: EngineError) -> None:
        self.results.failures[str(item)] = str(error)
        self.say(f"  failed: {error}")

    def _hopeless(self, item: Item) -> str:
        """Why an item is not worth trying: nothing of its workload ran, and one item has failed."""
        if any(row.workload == item.name for row in self.results.rows):
            return ""
        for failed in self.results.failures:
            if failed.startswith(f"{item.name}: "):
                return f"not tried, since nothing of it runs (see {failed})"
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
        """Run a trial, unless there is one."""
        for known in self.results.trials(item.name, item.limit_bytes):
            if known.batch_size == batch_size:
                return known
        order = TrialOrder(BY_NAME[item.name].workload, batch_size, item.limit_bytes)
        begin = time.monotonic()
        trial = self.doing.measure(order, self._within(TRIAL_SECONDS))
        seconds = time.monotonic() - begin
        self.results.rows.append(Row(item.name, item.limit_bytes, trial, seconds))
        self.save()
        self.say(f"  {_in_words(trial)}, {seconds:.1f} s")
        return trial

    def _certify(self, item: Item) -> None:
        name, limit = item.name, item.limit_bytes
        facts = self.results.device.facts
        usable = limited_device(facts, limit or facts.total_bytes).usable_bytes
        at_limit = self.results.trials(name, limit)
        # What stayed below this limit under another one is as it would be under this.
        elsewhere = [
            row.measured
            for row in self.results.rows
            if row.workload == name
            and row.limit_bytes != limit
            and 0 < _held(row.measured) <= usable
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
        """The predicted largest batch, as far off as the prediction was at another capacity.

        The prediction itself stays what it is; this only saves trials where it is off.
        """
        foreseen = self.doing.guess(name, limit_bytes, self._within(TRIAL_SECONDS))
        certified = {
            row.limit_bytes: self.results.largest(name, row.limit_bytes)
            for row in self.results.rows
            if row.workload == name
        }
        for limit, found in reversed(certified.items()):
            there = self.doing.guess(name, limit, self._within(TRIAL_SECONDS)) if found else None
            if foreseen and found and there:
                return round(foreseen * found / there)
        return foreseen

    def _search(self, item: Item) -> None:
        if item.limit_bytes is None:
            raise ValueError("a search needs a capacity")
        asked = Search(item.tool, None, item.name, item.limit_bytes)
        found = self.doing.search(asked, self._within(SEARCH_SECONDS))
        same = (found.tool, found.workload, found.limit_bytes)
        kept = [s for s in self.results.searches if (s.tool, s.workload, s.limit_bytes) != same]
        self.results.searches = [*kept, found]
        if found.version is None:
            self.say("  not installed")
        else:
            self.say(f"  {found.answer:,} in {found.trials:,} trials, {found.seconds:.1f} s")

    def _within(self, seconds: float) -> float:
        return max(min(seconds, self.budget.left), 0.0)


def _held(trial: Trial) -> int:
    """What a trial freely took for its tensors, in bytes; 0 if that is not known."""
    if not trial.fits or trial.alloc_retries:
        return 0
    return trial.peak_reserved_bytes or trial.peak_allocated_bytes or 0


def _in_words(trial: Trial) -> str:
    if not trial.fits:
        return f"batch {trial.batch_size:,} does not fit ({trial.failure})"
    gib = (trial.peak_allocated_bytes or 0) / 2**30
    step = 1000 * (trial.step_seconds or 0)
    return f"batch {trial.batch_size:,} fits: {gib:.2f} GiB allocated, {step:,.1f} ms a step"
