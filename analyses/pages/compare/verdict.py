"""The verdict of a comparison, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.figures.settings import input_size
from analyses.formatting import gpu_of, model_name
from analyses.pages.compare.columns import Column, parts_of
from analyses.pages.compare.rows import Cell, by_work, cell_of, overlap, setting_rows
from analyses.results.decided import decided_fields
from engine.answer import figures
from engine.answer.figures import Better, Figure
from engine.answer.worth import least_speedup
from engine.core.numbers import times
from engine.interface.request import FIELDS
from engine.interface.subject import program_hash_in
from engine.interface.trial import Source
from engine.models.tasks import SIZES

_MIN_MULTIPLE = 2
"""Ratio from which on a gain is shown as a multiple instead of a percentage."""

_MIN_DIFFERENCE = 0.005
"""A difference below this share rounds to none."""

_MIN_RANKED = 2


@dataclass(frozen=True)
class Measure:
    """The measure that analyses are compared by.

    Attributes:
        what: The noun, as in "no clear difference in …".
    """

    figure: Figure
    what: str

    def gain(self, ratio: float) -> str:
        """The winner's advantage, up to the name of the other.

        Args:
            ratio: The larger value divided by the smaller one, so at least 1.
        """
        if self.figure.better is Better.LOWER:
            cheaper = times(ratio) if ratio >= _MIN_MULTIPLE else f"{1 - 1 / ratio:.0%}"
            return f"is {cheaper} cheaper per sample than"
        if ratio >= _MIN_MULTIPLE:
            return f"trains {times(ratio)} as many {self.what} as"
        return f"trains {ratio - 1:.0%} more {self.what} than"


COST = Measure(figures.COST, "cost per sample")
TOKENS = Measure(figures.TOKEN_SPEED, "tokens per second")
SAMPLES = Measure(figures.SPEED, "samples per second")
AT_CURRENT = Measure(figures.CURRENT_SPEED, "samples per second")
TODAY = Measure(figures.CURRENT_SPEED, "samples per second, with today's settings,")
COST_AT_CURRENT = Measure(figures.COST_AT_CURRENT, "cost per sample")


@dataclass(frozen=True)
class Contender:
    """One analysis, by its number in the measure.

    Attributes:
        name: Distinguishes it from all others.
        parts: Its parts, such as GPU and precision, to distinguish it from one other.
    """

    name: str
    cell: Cell
    is_base: bool = False
    parts: tuple[str, ...] = ()


def verdict(columns: Sequence[Column], base: int | None) -> str:
    """The best of the analyses and how much better it is than the baseline.

    If the baseline is the best, it is held against the next best. GPUs are compared by cost,
    settings on one GPU by speed, and where batches differ, at those that were chosen.

    Returns:
        Empty while fewer than two have an answer, or where no speed is known.
    """
    answered = [column for column in columns if column.result]
    if len(answered) < _MIN_RANKED:
        return ""
    fitting = [column for column in answered if column.result and column.result.largest_batch_size]
    if not fitting:
        return "No batch size fits in any of these analyses."
    if len(fitting) == 1:
        return f"Only {fitting[0].label} fits; no batch size of the others does."
    works = by_work(fitting)
    return _of_one_work(fitting, base) if len(works) == 1 else _of_several(works, base)


def _of_several(works: Sequence[Sequence[Column]], base: int | None) -> str:
    """The winner of each model that several analyses are of; others are no rivals."""
    found = [(work[0], _of_one_work(work, base)) for work in works if len(work) >= _MIN_RANKED]
    won = [f"{_name_of_work(first, works)}: {said}" for first, said in found if said]
    if not won:
        return f"{_differing(works)} differ, so none is faster or cheaper than another."
    return " ".join([f"{_differing(works)} differ, so each has a winner of its own.", *won])


def _differing(works: Sequence[Sequence[Column]]) -> str:
    """The first thing by which a sample is not the same work for all, as a plural."""
    first, *others = [work[0].analysis.request for work in works]
    are_scripts = all(program_hash_in(request) for request in (first, *others))
    for what, names in (
        ("Scripts" if are_scripts else "Models", ("model",)),
        ("Sizes of samples", SIZES),
        ("Tasks", ("task",)),
        ("Configs", ("config",)),
    ):
        if any(first.get(name) != other.get(name) for name in names for other in others):
            return what
    return "Versions of the script"


def _name_of_work(column: Column, works: Sequence[Sequence[Column]]) -> str:
    """The model, with the size of its samples where another work is of the same model."""
    name = model_name(column.analysis.model)
    of_model = [work for work in works if work[0].analysis.model == column.analysis.model]
    size = input_size(column.analysis.request)
    return f"{name} at {size}" if len(of_model) > 1 and size else name


def _of_one_work(fitting: Sequence[Column], base: int | None) -> str:
    """The verdict on analyses whose samples are the same work."""
    measure = measure_of(fitting)
    contenders = [
        Contender(
            _name(column, measure),
            cell_of(measure.figure, column),
            column.pk == base,
            _parts(column, measure),
        )
        for column in fitting
    ]
    return sentence(measure, contenders)


def measure_of(columns: Sequence[Column]) -> Measure:
    """Choose the measure to compare by, from what differs between the analyses."""
    hardware = {(gpu_of(one.analysis), one.analysis.request.get("world_size")) for one in columns}
    batches = {column.analysis.current_batch_size for column in columns}
    if len(hardware) > 1 and all(cell_of(COST.figure, column).value for column in columns):
        # A sweep over batches compares these, not the one recommended for all of them.
        by_gpu = {(gpu_of(one.analysis), one.analysis.current_batch_size) for one in columns}
        is_sweep = len(by_gpu) > len(hardware) and len(batches) > 1 and None not in batches
        return COST_AT_CURRENT if is_sweep else COST
    differing = {row.label for row in setting_rows(columns) if row.differs}
    changed = {FIELDS[name].label for one in columns for name in decided_fields(one.analysis)}
    if differing == {FIELDS["current_batch_size"].label}:
        return AT_CURRENT
    if differing & changed:  # a decision changes what is compared
        return TODAY
    has_tokens = all(cell_of(TOKENS.figure, column).value for column in columns)
    return TOKENS if has_tokens else SAMPLES


def sentence(measure: Measure, contenders: Sequence[Contender]) -> str:
    """The verdict on contenders whose samples are the same work."""
    ranked = sorted(
        (one for one in contenders if one.cell.value),
        key=lambda one: -measure.figure.better * (one.cell.value or 0),
    )
    if len(ranked) < _MIN_RANKED:
        return ""
    best = ranked[0]
    rivals = [one for one in ranked if one.cell.value != best.cell.value]
    if not rivals:
        return f"No difference in {measure.what} ({_sources(ranked)})."
    other = next((one for one in rivals if one.is_base), rivals[0])
    first, second = best.cell.value or 0, other.cell.value or 0
    ratio = max(first, second) / min(first, second)
    names, shared = _told_apart(best, other, contenders)
    said = "; ".join(filter(None, [shared, _sources([best, other])]))
    both = f"{measure.what} between {' and '.join(names)}"
    if overlap(best.cell, other.cell):
        return f"No clear difference in {both}: the ranges overlap ({said})."
    if ratio < _least_speedup([best, other]):
        size = f": {ratio - 1:.0%}" if ratio - 1 >= _MIN_DIFFERENCE else ""
        return f"No difference worth a change in {both}{size} ({said})."
    return f"{_capital(names[0])} {measure.gain(ratio)} {names[1]} ({said})."


def _least_speedup(contenders: Sequence[Contender]) -> float:
    """The smallest speedup worth a change; a smaller one is enough if everything was measured."""
    used = {source for one in contenders for source in one.cell.sources} - {Source.ASSUMED}
    return least_speedup(Source.MEASURED if used == {Source.MEASURED} else Source.PREDICTED)


def _told_apart(
    best: Contender, other: Contender, contenders: Sequence[Contender]
) -> tuple[tuple[str, str], str]:
    """The names of two by what they differ in, and what only these two have in common."""
    first = [part for part in best.parts if part not in other.parts]
    second = [part for part in other.parts if part not in best.parts]
    if not (first and second):
        return (best.name, other.name), ""
    shared = [
        part
        for part in best.parts
        if part in other.parts and not all(part in one.parts for one in contenders)
    ]
    names = " · ".join(first), " · ".join(second)
    return names, f"both {', '.join(shared)}" if shared else ""


def _name(column: Column, measure: Measure) -> str:
    size = column.analysis.current_batch_size
    return f"batch {size:,}" if measure is AT_CURRENT and size else column.label


def _parts(column: Column, measure: Measure) -> tuple[str, ...]:
    if measure is AT_CURRENT:
        return ()
    size = column.analysis.current_batch_size
    batch = [f"batch {size:,}"] if measure is COST_AT_CURRENT else []
    is_of_today = measure.figure in (figures.CURRENT_SPEED, figures.COST_AT_CURRENT)
    return (*parts_of(column.analysis, today=is_of_today), *batch)


def _capital(name: str) -> str:
    return f"Batch{name[5:]}" if name.startswith("batch ") else name


def _sources(contenders: Sequence[Contender]) -> str:
    """The sources of the numbers; what is assumed in a cost is the price."""
    used = {source for one in contenders for source in one.cell.sources}
    known = [str(source) for source in Source if source in used and source is not Source.ASSUMED]
    assumed = ["assumed prices"] if Source.ASSUMED in used else []
    return ", ".join([" and ".join(known), *assumed])
