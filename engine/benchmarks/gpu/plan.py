"""What is done, the most important first: a list of items, each of which can be left for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.benchmarks.gpu.results import Results, limit_in_words
from engine.benchmarks.gpu.workloads import FIRST, Benchmarked

_GIB = 2**30
_MIB = 2**20


class Kind(StrEnum):
    """What is done for an item."""

    SIZES = "sizes"
    LIMIT = "limit"
    SEARCH = "search"


@dataclass(frozen=True)
class Item:
    """One thing to do.

    Attributes:
        kind: Trials of given batch sizes, a certified limit, or one tool's search.
        name: Of the workload.
        batch_sizes: Of the trials.
        limit_bytes: The capacity to emulate; ``None`` for the whole device.
        tool: Whose search.
    """

    kind: Kind
    name: str
    batch_sizes: tuple[int, ...] = ()
    limit_bytes: int | None = None
    tool: str = ""

    def __str__(self) -> str:
        """The item as the results name it."""
        match self.kind:
            case Kind.SIZES:
                return f"{self.name}: batch {' and '.join(map(str, self.batch_sizes))}"
            case Kind.LIMIT:
                return f"{self.name}: largest batch on {limit_in_words(self.limit_bytes)}"
        return f"{self.name}: search on {limit_in_words(self.limit_bytes)} by {self.tool}"

    def done(self, results: Results) -> bool:
        """Whether results have it."""
        match self.kind:
            case Kind.SIZES:
                tried = {t.batch_size for t in results.trials(self.name, self.limit_bytes)}
                return tried >= set(self.batch_sizes)
            case Kind.LIMIT:
                return results.largest(self.name, self.limit_bytes) is not None
        asked = (self.name, self.limit_bytes, self.tool)
        # A tool that was missing may have been installed since.
        return any(
            (done.workload, done.limit_bytes, done.tool) == asked and done.version is not None
            for done in results.searches
        )


@dataclass(frozen=True)
class Capacities:
    """Which capacities are emulated.

    Attributes:
        first: Of every workload, before any other.
        others: The rest; ``None`` stands for the whole device.
        searched: Where the tools' searches are timed, on the first workload.
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

    First every workload at two batch sizes and one capacity, then the first three in full, then the
    searches, then the rest: whenever time runs out, what is there covers the most.

    Args:
        workloads: What is measured.
        capacities: Which capacities are emulated; those above the device's memory are left out.
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
