"""What an answer is worth, under the stored assumptions or under others that somebody tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

from analyses.figures import Figure, has_gain, worth_figures
from analyses.formatting import plain_number
from engine.answer import economics
from engine.errors import InvalidInput
from engine.request import Assumptions
from engine.result import AnalysisResult, Savings

LABELS = {
    "runs_per_year": "Runs per year",
    "hours_per_run": "GPU-hours per run today",
    "price_per_hour_usd": "USD per GPU-hour",
}


@dataclass(frozen=True)
class Field:
    """One assumption as the page lets one change it."""

    name: str
    label: str
    value: str
    error: str


@dataclass(frozen=True)
class Worth:
    """The figures of an answer that depend on assumptions, and the assumptions.

    Attributes:
        fields: Empty where nothing is known to compute with.
        query: The assumptions that are not the stored ones, as an address says them.
    """

    figures: list[Figure]
    fields: list[Field]
    query: str

    @property
    def wrong(self) -> list[Field]:
        """The fields that cannot be taken; the figures are then those of the stored assumptions."""
        return [field for field in self.fields if field.error]


def worth_of(result: AnalysisResult, query: Mapping[str, str], *, adopted: bool) -> Worth:
    """What a result is worth with the assumptions of an address; those not in it are as stored."""
    saved = result.savings
    if saved is None:
        return Worth(worth_figures(result, adopted=adopted), [], "")
    stored = asdict(_stored(saved))
    given = {name: query.get(name) or plain_number(stored[name]) for name in LABELS}
    wrong: dict[str, str] = {}
    changed: dict[str, str] = {}
    try:
        tried = Assumptions(**given)  # type: ignore[arg-type]  # it reads numbers from text
    except InvalidInput as error:
        wrong = error.fields
    else:
        values = asdict(tried)
        changed = {name: given[name] for name in LABELS if values[name] != stored[name]}
        result = with_assumptions(result, tried) if changed else result
    return Worth(
        figures=worth_figures(result, adopted=adopted),
        fields=[
            Field(name, label, given[name], wrong.get(name, "")) for name, label in LABELS.items()
        ],
        query=urlencode(changed),
    )


def with_assumptions(result: AnalysisResult, assumptions: Assumptions) -> AnalysisResult:
    """The same answer with its savings computed anew; without a speedup it stays as it is.

    Args:
        result: The answer.
        assumptions: With ``None`` for its price, the result's holds.
    """
    saved, ratio = result.savings, result.speedup
    if saved is None or ratio is None:
        return result
    low, high = result.speedup_low, result.speedup_high
    if low is None:  # an older version stored it, without the interval but with its judgement
        low = ratio if has_gain(result) else 1.0
    gained = economics.Speedup(ratio, low, ratio if high is None else high)
    price = assumptions.price_per_hour_usd
    price = saved.price_per_hour_usd if price is None else price
    return replace(result, savings=economics.savings(assumptions, price, gained, saved.source))


def _stored(saved: Savings) -> Assumptions:
    return Assumptions(saved.hours_per_run, saved.runs_per_year, saved.price_per_hour_usd)
