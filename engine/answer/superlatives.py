"""Superlatives of batches, texts and GPUs, each with its condition.

A batch that is the fastest of those that surely fit may stand beside a faster one that may not, and
so may a GPU beside a cheaper one. Pages, charts, terminals and sentences take the words from here.
"""

from __future__ import annotations

from ..interface.result import AnalysisResult

CURRENT, RECOMMENDED = "current", "recommended"
LARGEST, LONGEST = "largest", "longest"
LOWEST_PRICE = "lowest price"
CHEAPEST_PER_SAMPLE = "cheapest per sample"
FASTEST = "fastest"


def of_those(superlative: str, *, is_sure: bool) -> str:
    """A superlative with its condition: ``fastest that surely fits``, or ``that may fit``."""
    return f"{superlative} that {'surely fits' if is_sure else 'may fit'}"


def named_batches(result: AnalysisResult) -> dict[int, list[str]]:
    """The batches of an answer that have names: current, recommended, fastest and largest.

    Where no batch to choose from surely fits, none is known to be the fastest.
    """
    safe, most = result.safe_batch_size, result.largest_batch_size
    named = [(CURRENT, result.current_batch_size), (RECOMMENDED, result.recommended_batch_size)]
    fastest = result.fastest_batch_size
    if safe is None:  # the limit was measured
        named += [(f"{FASTEST} that fits", fastest), (f"{LARGEST} that fits", most)]
    else:
        if fastest is not None and fastest <= safe:
            named.append((of_those(FASTEST, is_sure=True), fastest))
        named.append((of_those(LARGEST, is_sure=most <= safe), most))
    names: dict[int, list[str]] = {}
    for name, size in named:
        if size is not None:
            names.setdefault(size, []).append(name)
    return names
