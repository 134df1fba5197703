"""Assumptions about a year of training: hours, runs, price and electricity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.border import settle
from ..core.errors import InvalidInput
from ..core.fields import Described, Group, Interval

WORLD_CO2E_GRAMS_PER_KWH = 481.0
"""Emissions of the world's electricity in 2023, in grams of CO2 equivalents per kWh generated:
Ember, 3 July 2024 (https://www.statista.com/statistics/943137/, read 2026-11)."""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the user or the lab about a year of training.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    hours_per_run: Annotated[
        float,
        Interval(ge=0, le=100_000),
        Described(
            "Hours per run",
            "GPU-hours per training run today, summed over all GPUs.",
            Group.COST,
            metavar="HOURS",
        ),
    ] = 8.0
    runs_per_year: Annotated[
        float,
        Interval(ge=0, le=1_000_000),
        Described("Runs per year", "How many such runs your lab starts in a year.", Group.COST),
    ] = 100.0
    price_per_hour_usd: Annotated[
        float | None,
        Interval(ge=0, le=10_000),
        Described(
            "Price per GPU-hour",
            "Per GPU.",
            Group.COST,
            unit="USD",
            empty="the catalogue price",
            flag="--price-per-hour",
            metavar="USD",
        ),
    ] = None
    grid_co2e_grams_per_kwh: Annotated[
        float,
        Interval(ge=0, le=10_000),
        Described(
            "Grid intensity",
            f"CO2e of the electricity where you train. {WORLD_CO2E_GRAMS_PER_KWH:g} is the world's "
            "average of 2023 (Ember).",
            Group.COST,
            unit="g CO2e per kWh",
            flag="--grid-intensity",
            metavar="GRAMS",
        ),
    ] = WORLD_CO2E_GRAMS_PER_KWH

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle(self, wrong)
        if wrong:
            raise InvalidInput(wrong)
