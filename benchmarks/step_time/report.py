"""Tables of how far predicted step times are off, by what was published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median

from rich import box
from rich.table import Table

from benchmarks.errors import Errors
from benchmarks.step_time.learning import Learned, Spread, learned, spreads
from benchmarks.step_time.predictions import Predicted
from benchmarks.step_time.rows import OWN
from benchmarks.step_time.writing import Ranges
from engine.answer.economics import (
    FILLED_NOISE,
    MIN_GAIN,
    Verdict,
    speedup,
    unfilled_noise,
    within,
)
from engine.prediction.timing.intervals import RelativeRange, step_time_range
from engine.prediction.timing.past_errors import percentile
from engine.prediction.timing.speed_model import speed_model
from engine.prediction.timing.step_time import FILLED, Family

COVERAGE = 0.95
"""The share of residuals that a range holds: more than the 90% that are promised, since new steps
differ from all that are known."""

OURS = {"h100": "our H100", "h200": "our H200"}
"""The GPUs that we measured on ourselves."""

ON_SEVERAL_GPUS = {"llm-foundry"}
"""Sources that ran on several GPUs. What these send each other is not predicted for one, so they
are no check of the constants, but show what is missing."""

MIN_ROWS = 20
"""With fewer residuals in a family, those of all families decide."""


@dataclass(frozen=True)
class Error:
    """Errors of predictions, as shares of the measured value.

    Attributes:
        group: Name of the rows.
        rows: Number of rows.
        median, percentile_90: The absolute error.
    """

    group: str
    rows: int
    median: float
    percentile_90: float


@dataclass(frozen=True)
class Ratio:
    """Errors of predicted ratios of speeds.

    Attributes:
        group: Name of the pairs.
        pairs: Number of pairs.
    """

    group: str
    pairs: int
    median: float
    percentile_90: float


@dataclass(frozen=True)
class Sweep:
    """Two batches of one published setup.

    Attributes:
        measured, predicted: Samples per second of the larger over the smaller.
        low, high: The interval of the predicted ratio.
        widest: Whether they are the smallest and the largest batch of the setup.
        verdict: The engine's verdict on the predicted ratio.
        wrong: Whether that is a sure gain, or none, and the measured ratio says otherwise.
    """

    trace: str
    gpu: str
    small: int
    large: int
    widest: bool
    measured: float
    predicted: float
    low: float
    high: float
    verdict: str
    wrong: bool


@dataclass(frozen=True)
class Coverage:
    """Number of measured times within the range of their predictions."""

    group: str
    rows: int
    within: int


@dataclass(frozen=True)
class Figures:
    """Everything that the tables show.

    Attributes:
        summary: Of rows whose architecture was not fitted, and of checks, whose rows never were;
            of our H100's steps, and of speedups between two batches of them, by constants without
            the model.
    """

    summary: dict[str, Errors]
    errors: list[Error]
    ratios: list[Ratio]
    sweeps: list[Sweep]
    coverage: list[Coverage]
    learned: list[Learned]
    spreads: list[Spread]


def figures(found: Sequence[Predicted]) -> Figures:
    """The figures of all rows; those that were fitted count with what had not seen them."""
    fitted = [row for row in found if row.fitted]
    checks = [row for row in found if not (row.fitted or row.source in ON_SEVERAL_GPUS)]
    several = _of_several_gpus(fitted)
    ours = {name: _on(fitted, gpu) for gpu, name in OURS.items()}
    h100 = _on(fitted, "h100")
    return Figures(
        summary={
            "unseen": Errors.of(row.unseen / row.measured - 1 for row in fitted),
            "checks": Errors.of(row.predicted / row.measured - 1 for row in checks),
            "own steps": Errors.of(row.unseen / row.measured - 1 for row in h100),
            "own speedups": Errors.of(one.predicted / one.measured - 1 for one in of_h100(h100)),
        },
        errors=list(_errors(found, fitted, checks)),
        ratios=[
            _ratios("batches of one setup", [_speedup(*pair) for pair in _batch_pairs(found)]),
            *(
                _ratios(f"  of them, on {name}", [_speedup(*pair) for pair in _batch_pairs(rows)])
                for name, rows in ours.items()
            ),
            _ratios("GPUs, the model not fitted", _gpu_pairs(found, lambda row: row.unseen)),
            _ratios("GPUs, the GPU not fitted", _gpu_pairs(found, lambda row: row.unseen_gpu)),
        ],
        sweeps=list(_sweeps(found)),
        coverage=[
            _covered("model not fitted", fitted, lambda row: row.unseen, True),
            _covered("GPU not fitted", several, lambda row: row.unseen_gpu, False),
            *(
                _covered(f"{family}, model not fitted", _of(fitted, family), _unseen, True)
                for family in Family
            ),
            _covered("checks", checks, lambda row: row.predicted, None),
            *(one for name, rows in ours.items() for one in _covered_by_limit(name, rows)),
        ],
        learned=learned(found),
        spreads=spreads(found),
    )


def _on(rows: Iterable[Predicted], gpu: str) -> list[Predicted]:
    """Our own steps on a GPU."""
    return [row for row in rows if OWN.get(row.source) == gpu]


def _of(rows: Iterable[Predicted], family: Family) -> list[Predicted]:
    return [row for row in rows if row.family == family]


def _of_several_gpus(rows: Iterable[Predicted]) -> list[Predicted]:
    """Without timm's, which are of one GPU: without it, their networks are not fitted either."""
    return [row for row in rows if not row.source.startswith("timm")]


def _unseen(row: Predicted) -> float:
    return row.unseen


def unseen_error(found: Iterable[Predicted]) -> Error:
    """Error of the rows that were fitted, by constants that had not seen their architecture."""
    return _error("model not fitted", [row for row in found if row.fitted])


def _errors(
    found: Sequence[Predicted], fitted: Sequence[Predicted], checks: Sequence[Predicted]
) -> Iterator[Error]:
    yield unseen_error(found)
    for family in Family:
        yield _error(f"  {family}", _of(fitted, family))
    yield from _by_limit(found)
    for name in ("precision", "source", "gpu"):
        values = sorted({str(getattr(row, name)) for row in fitted})
        for value in values:
            yield _error(f"  {value}", [row for row in fitted if getattr(row, name) == value])
    yield _error("GPU not fitted", _of_several_gpus(fitted), lambda row: row.unseen_gpu)
    yield _error("checks: never fitted", checks)
    for source in sorted({row.source for row in checks}):
        yield _error(f"  {source}", [row for row in checks if row.source == source])
    for source in sorted(ON_SEVERAL_GPUS):
        rows = [row for row in found if row.source == source]
        yield _error(f"{source}: 8 GPUs, predicted as one", rows)


_LIMITS = {False: "limited by the GPU", True: "limited by the host"}
"""By whether the GPU waits for its host."""


def _by_limit(found: Sequence[Predicted]) -> Iterator[Error]:
    """Yield errors of our own steps, which small batches make wait for their host."""
    for gpu, name in OURS.items():
        own = _on(found, gpu)
        for waits, limit in _LIMITS.items():
            yield _error(f"  {name}, {limit}", [row for row in own if row.launch_limited == waits])


def _error(
    group: str, rows: Sequence[Predicted], of: Callable[[Predicted], float] = _unseen
) -> Error:
    errors = [abs(of(row) / row.measured - 1) for row in rows] or [0.0]
    return Error(group, len(rows), median(errors), percentile(errors, 0.9))


_Pair = tuple[Predicted, Predicted]


def _setups(found: Iterable[Predicted]) -> list[list[Predicted]]:
    """Rows that differ in nothing but the batch, smaller ones first."""
    setups: dict[tuple[object, ...], list[Predicted]] = defaultdict(list)
    for row in found:
        key = (
            row.source, row.gpu, row.trace, row.size, row.precision, row.optimizer,
            row.channels_last,
        )  # fmt: skip
        setups[key].append(row)
    return [sorted(rows, key=lambda row: row.batch) for rows in setups.values()]


def _batch_pairs(found: Iterable[Predicted]) -> list[_Pair]:
    return [
        pair
        for rows in _setups(found)
        for pair in combinations(rows, 2)
        if pair[0].batch != pair[1].batch
    ]


def _sweeps(found: Iterable[Predicted]) -> Iterator[Sweep]:
    for rows in _setups(found):
        for pair in _batch_pairs(rows):
            yield _sweep(*pair, widest=pair == (rows[0], rows[-1]))


def of_h100(found: Iterable[Predicted]) -> list[Sweep]:
    """Every two batches of our H100, by constants fitted without the model."""
    return [_sweep(*pair, widest=False) for pair in _batch_pairs(_on(found, "h100"))]


def _gpu_pairs(
    found: Iterable[Predicted], of: Callable[[Predicted], float]
) -> list[tuple[float, float]]:
    """Measured and predicted speed of one GPU over another, for the same model and source."""
    setups: dict[tuple[object, ...], list[Predicted]] = defaultdict(list)
    for row in found:
        setups[row.source, row.trace, row.size, row.precision, row.channels_last].append(row)
    return [
        (_speed(one, one.measured) / _speed(other, other.measured), of_both)
        for rows in setups.values()
        for one, other in combinations(rows, 2)
        if one.gpu != other.gpu
        for of_both in [_speed(one, of(one)) / _speed(other, of(other))]
    ]


def _speed(row: Predicted, seconds: float) -> float:
    return row.batch / seconds


def _ratios(group: str, pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The error of ratios, each measured and predicted."""
    off = [abs(predicted / measured - 1) for measured, predicted in pairs] or [0.0]
    return Ratio(group, len(pairs), median(off), percentile(off, 0.9))


def _speedup(one: Predicted, other: Predicted) -> tuple[float, float]:
    """Speed of the other over that of the one, measured and predicted."""
    return (
        _speed(other, other.measured) / _speed(one, one.measured),
        _speed(other, other.unseen) / _speed(one, one.unseen),
    )


def _sweep(small: Predicted, large: Predicted, *, widest: bool) -> Sweep:
    measured, predicted = _speedup(small, large)
    filled = min(small.filled, large.filled) >= FILLED
    noise = FILLED_NOISE if filled else unfilled_noise(predicted)
    gained = speedup(1.0, predicted, within(noise))
    wrong = (gained.verdict is Verdict.GAIN and measured <= 1) or (
        gained.verdict is Verdict.NO_GAIN and measured > MIN_GAIN
    )
    return Sweep(
        small.trace, small.gpu, small.batch, large.batch, widest, measured, predicted,
        gained.low, gained.high, gained.verdict, wrong,
    )  # fmt: skip


def _covered(
    group: str,
    rows: Sequence[Predicted],
    of: Callable[[Predicted], float],
    known: bool | None,
) -> Coverage:
    """Count times within their range, on hosts whose launch time is known."""
    within = 0
    for row in rows:
        span = _range_of(row, known)
        within += span.low <= row.measured / of(row) <= span.high
    return Coverage(group, len(rows), within)


def _covered_by_limit(name: str, own: Sequence[Predicted]) -> Iterator[Coverage]:
    """Yield the coverage of our own steps, with the host's launch time known and assumed."""
    for waits, limit in _LIMITS.items():
        rows = [row for row in own if row.launch_limited == waits]
        yield _covered(f"{name}, {limit}", rows, _unseen, True)
        yield _covered_on_any_host(f"{name}, {limit}, the host not known", rows)


def _covered_on_any_host(group: str, rows: Sequence[Predicted]) -> Coverage:
    """Coverage where nothing is known of the host, with the constants in use."""
    spans = [_range_of(row, known=True) for row in rows]
    within = sum(
        span.low * row.fastest <= row.measured <= span.high * row.slowest
        for row, span in zip(rows, spans, strict=True)
    )
    return Coverage(group, len(rows), within)


def _range_of(row: Predicted, known: bool | None) -> RelativeRange:
    has_rows = row.gpu in speed_model().gpus if known is None else known
    return step_time_range(Family(row.family), has_rows, row.launch_limited)


def ranges_of(found: Sequence[Predicted]) -> Ranges:
    """The middle :data:`COVERAGE` of residuals, by family, GPU and what limits a step.

    A GPU without rows is no better known than one with rows.
    """
    fitted = [row for row in found if row.fitted]
    of_several = _of_several_gpus(fitted)
    ranges = {}
    for waits in (False, True):
        for family in Family:
            known = _middle([row.measured / row.unseen for row in _enough(fitted, family, waits)])
            several = _enough(of_several, family, waits)
            other = _middle([row.measured / row.unseen_gpu for row in several])
            ranges[str(family), True, waits] = known
            ranges[str(family), False, waits] = (min(known[0], other[0]), max(known[1], other[1]))
    return ranges


def _enough(rows: Sequence[Predicted], family: Family, waits: bool) -> Sequence[Predicted]:
    """The rows of a family and a limit; all with that limit if they are too few."""
    limited = [row for row in rows if row.launch_limited == waits]
    found = _of(limited, family)
    return found if len(found) >= MIN_ROWS else limited


def _middle(ratios: Sequence[float]) -> tuple[float, float]:
    out = (1 - COVERAGE) / 2
    return min(1.0, percentile(ratios, out)), max(1.0, percentile(ratios, 1 - out))


def tables(found: Figures) -> list[Table]:
    """The tables for a terminal."""
    return [
        _table("Error of predicted step times", found.errors),
        _table("Error of predicted ratios of speeds", found.ratios),
        _table("Two batches of one setup", found.sweeps),
        _table("Measured times within the range of their predictions", found.coverage),
        _table("Corrected by steps measured on the GPU", found.learned),
        _table("Deviation of measured from predicted times, by its cause", found.spreads),
    ]


def _table(
    title: str, rows: Sequence[Error | Ratio | Sweep | Coverage | Learned | Spread]
) -> Table:
    table = Table(box=box.SIMPLE, title=title)
    for name in asdict(rows[0]) if rows else ():
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in asdict(row).items()))
    return table


def _cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return (
            f"{value:.2f}" if name in ("measured", "predicted", "low", "high") else f"{value:.1%}"
        )
    return str(value)
