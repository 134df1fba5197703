"""The rows of a comparison: the settings, and the results with their differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analyses.figures.settings import settings_of
from analyses.formatting import gpu_of
from analyses.pages.compare.columns import Column
from analyses.results.decided import decided_moves
from engine.answer.figures import COST, COST_AT_CURRENT, FIGURES, Figure
from engine.core.numbers import UNKNOWN, difference, usd
from engine.interface.subject import program_hash_in
from engine.interface.trial import Source
from engine.models.tasks import SIZES


@dataclass(frozen=True)
class Cell:
    """One number of one analysis.

    Attributes:
        value: The number for the difference; ``None`` where there is none.
        low, high: Its interval, where it has one.
        delta: The difference from the baseline as text; empty where there is none.
        tone: Whether the difference is ``better``, ``worse`` or neither (empty).
        best: ``best`` for the best of its row, ``probably best`` where another's range overlaps
            its own; else empty.
    """

    text: str
    sources: tuple[Source, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    delta: str = ""
    tone: str = ""
    best: str = ""


@dataclass(frozen=True)
class ComparisonRow:
    """One row of the table.

    Attributes:
        key: The API's name of the number; empty for a setting, which is text.
        unit: Unit of the cells' values; empty where they are counts or ratios.
    """

    label: str
    cells: list[Cell]
    key: str = ""
    unit: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of all its numbers where they have them in common, to say them once."""
        used = {cell.sources for cell in self.cells if cell.sources}
        return used.pop() if len(used) == 1 else ()

    @property
    def differs(self) -> bool:
        return len({(cell.text, cell.note, cell.sources) for cell in self.cells}) > 1


def cell_of(figure: Figure, column: Column) -> Cell:
    """The cell of a number, without its difference; a dash where there is none."""
    found = figure.of(column.answered)
    if found is None:
        return Cell(UNKNOWN)
    text = figure.shown(found)
    return Cell(text, found.sources, found.value, found.low, found.high, found.note)


def setting_rows(columns: Sequence[Column]) -> list[ComparisonRow]:
    """A row per setting, with a dash where an analysis does not have it."""
    settings = [
        dict(settings_of(column.analysis.request)) | {"GPU": gpu_of(column.analysis)}
        for column in columns
    ]
    return [
        ComparisonRow(label, [Cell(each.get(label, UNKNOWN)) for each in settings])
        for label in _in_common_order(settings)
    ]


def answer_rows(columns: Sequence[Column], base: int | None) -> list[ComparisonRow]:
    """A row per number of the results, each with its difference from the baseline."""
    baseline = next((column for column in columns if column.pk == base), None)
    rows = [_decision_row(columns)]
    for figure in FIGURES:
        held_against = cell_of(figure, baseline) if baseline else Cell(UNKNOWN)
        cells = []
        for column in columns:
            cell = cell_of(figure, column)
            both_are_numbers = all(_is_number(one, figure) for one in (cell, held_against))
            if baseline and column is not baseline and both_are_numbers:
                better = figure.better if same_work(column, baseline) else 0
                cell = _with_delta(cell, held_against, better)
            cells.append(cell)
        if not figure.is_optional or any(cell.value is not None for cell in cells):
            cells = _best_of_each_work(cells, columns, figure.better)
            rows.append(ComparisonRow(figure.full_label, cells, figure.name, figure.unit.name))
        if figure is COST and baseline and _gpus_differ(columns):
            rows.append(_baselines_run_row(columns, baseline))
    return rows


def _gpus_differ(columns: Sequence[Column]) -> bool:
    return len({gpu_of(column.analysis) for column in columns}) > 1


def _baselines_run_row(columns: Sequence[Column], baseline: Column) -> ComparisonRow:
    """The cost of the baseline's run on each GPU: the same samples, whatever hours are assumed.

    Each analysis assumes the hours of a run on its own GPU, so those costs are of different work.
    """
    saved = baseline.result.savings if baseline.result else None
    today = cell_of(COST_AT_CURRENT, baseline).value
    scale = saved.current_usd_per_run / today if saved and today else None
    cells = []
    for column in columns:
        cell = cell_of(COST, column)
        if scale is None or cell.value is None or not same_work(column, baseline):
            cells.append(Cell(UNKNOWN))
            continue
        ends = [None if end is None else end * scale for end in (cell.low, cell.high)]
        low, high = ends
        note = f"{usd(low)}\N{EN DASH}{usd(high)}" if low and high else ""
        cost = cell.value * scale
        cells.append(Cell(usd(cost), cell.sources, cost, low, high, note))
    marked = _best_of_each_work(cells, columns, COST.better)
    return ComparisonRow("Cost of the baseline run on each GPU", marked, unit=COST.unit.name)


def _decision_row(columns: Sequence[Column]) -> ComparisonRow:
    """The changes that the results are with; a dash where only the batch changes."""
    moves = [", ".join(decided_moves(column.analysis)) for column in columns]
    return ComparisonRow("Changes decided", [Cell(each or UNKNOWN) for each in moves])


def same_work(one: Column, other: Column) -> bool:
    """Whether a sample is the same work for both; otherwise neither can be better at it."""
    names = ("model", "config", "task", *SIZES)
    first, second = one.analysis.request, other.analysis.request
    same_program = program_hash_in(first) == program_hash_in(second)
    return same_program and all(first.get(name) == second.get(name) for name in names)


def by_work(columns: Sequence[Column]) -> list[list[Column]]:
    """The columns in groups whose samples are the same work, in their order."""
    works: list[list[Column]] = []
    for column in columns:
        known = next((work for work in works if same_work(column, work[0])), None)
        if known is None:
            works.append([column])
        else:
            known.append(column)
    return works


def _best_of_each_work(cells: Sequence[Cell], columns: Sequence[Column], better: int) -> list[Cell]:
    """The cells of a row with the best of each work marked."""
    marked = list(cells)
    for work in by_work(columns):
        places = [place for place, column in enumerate(columns) if column in work]
        found = with_best([cells[place] for place in places], better)
        for place, cell in zip(places, found, strict=True):
            marked[place] = cell
    return marked


def with_best(cells: list[Cell], better: int) -> list[Cell]:
    """The cells of a row with the best of them marked, unless all are equal.

    Args:
        cells: The cells of one row, whose values are the same work.
        better: 1 where more is better, -1 where less is, 0 where neither is.
    """
    values = {cell.value for cell in cells if cell.value is not None}
    if not better or len(values) < 2:
        return cells
    top = max(values, key=lambda value: better * value)
    return [
        replace(cell, best=_sureness(cell, cells)) if cell.value == top else cell for cell in cells
    ]


def _sureness(best: Cell, cells: Iterable[Cell]) -> str:
    return "probably best" if any(overlap(best, cell) for cell in cells) else "best"


def _in_common_order(columns: Iterable[dict[str, str]]) -> list[str]:
    """Every label once, each after the one that precedes it where it occurs."""
    order: list[str] = []
    for settings in columns:
        at = 0
        for label in settings:
            if label in order:
                at = order.index(label) + 1
            else:
                order.insert(at, label)
                at += 1
    return order


def _is_number(cell: Cell, figure: Figure) -> bool:
    """Whether a cell shows its number, and no words instead, such as ``no gain``."""
    return cell.value is not None and cell.text == figure.text(cell.value)


def _with_delta(cell: Cell, base: Cell, better: int) -> Cell:
    if not cell.value or not base.value:
        return cell
    ratio = cell.value / base.value
    direction = better * ((ratio > 1) - (ratio < 1))
    tone = {1: "better", -1: "worse"}.get(direction, "")
    delta = difference(ratio)
    if overlap(cell, base):
        delta, tone = f"{delta}; the ranges overlap", ""
    return replace(cell, delta=delta, tone=tone)


def overlap(one: Cell, other: Cell) -> bool:
    """Whether the intervals of two different values have numbers in common."""
    ends = (one.low, one.high, other.low, other.high)
    low, high, other_low, other_high = ends
    if low is None or high is None or other_low is None or other_high is None:
        return False
    return low <= other_high and other_low <= high and one.value != other.value
