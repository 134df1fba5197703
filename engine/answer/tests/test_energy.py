from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.economics import Speedup, savings
from engine.answer.energy import (
    BUSY_LOAD,
    BUSY_SHARE,
    IDLE_SHARE,
    Power,
    limit_watts,
    power_of,
    power_share,
)
from engine.answer.worth import is_worth_it
from engine.gpus import GPUS
from engine.interface.assumptions import Assumptions
from engine.interface.result import Energy, MeasuredOn
from engine.interface.trial import GpuFacts, Source, Trial

USE = Assumptions(hours_per_run=10, runs_per_year=100, grid_co2e_grams_per_kwh=500)
BUSY = Power(400, 290, 290)


def trial(batch_size: int, speed: float | None, source: Source = Source.PREDICTED) -> Trial:
    return Trial(batch_size, fits=True, source=source, samples_per_second=speed)


def saved(power: Power, gained: Speedup, use: Assumptions = USE) -> Energy:
    taken = is_worth_it(gained, Source.PREDICTED)
    found = savings(use, 1.0, gained, Source.PREDICTED, power, taken=taken).energy
    assert found is not None
    return found


def test_a_waiting_gpu_draws_little_and_a_busy_one_the_same_at_every_batch() -> None:
    assert power_share(0) == IDLE_SHARE
    assert power_share(BUSY_LOAD) == power_share(1) == pytest.approx(BUSY_SHARE)


@given(st.floats(0, 1), st.floats(0, 1))
def test_power_rises_with_the_load_but_slower_than_the_speed(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert power_share(low) <= power_share(high)
    # So a sample never takes more energy at a faster batch.
    assert power_share(high) * low <= power_share(low) * high + 1e-12


def test_energy_per_run_and_year() -> None:
    energy = saved(BUSY, Speedup(2.0, 1.9, 2.1))
    assert (energy.current_kwh_per_run, energy.recommended_kwh_per_run) == (2.9, 1.45)
    assert energy.kwh_per_year == pytest.approx(145)
    assert energy.kg_co2e_per_year == pytest.approx(72.5)
    assert energy.grid_co2e_grams_per_kwh == 500


def test_higher_power_at_the_recommended_batch_counts_against_its_speedup() -> None:
    energy = saved(Power(400, 100, 290), Speedup(3.0, 2.9, 3.1))
    assert energy.recommended_kwh_per_run == pytest.approx(10 / 3 * 0.29)
    assert energy.kwh_per_year == pytest.approx(100 * (1.0 - 10 / 3 * 0.29))
    assert energy.kwh_per_year_low < 0 < energy.kwh_per_year_high


def test_without_a_gain_nothing_is_saved_and_a_run_takes_what_it_takes() -> None:
    energy = saved(Power(400, 200, 290), Speedup(1.01, 0.99, 1.03))
    assert energy.current_kwh_per_run == energy.recommended_kwh_per_run == 2.0
    assert (energy.kwh_per_year_low, energy.kwh_per_year, energy.kwh_per_year_high) == (0, 0, 0)
    assert energy.kg_co2e_per_year == 0


@given(
    st.floats(0.01, 1), st.floats(0.01, 1), st.floats(1.01, 20), st.floats(0, 1), st.floats(0, 1)
)
def test_the_interval_holds_the_savings(
    one: float, other: float, ratio: float, below: float, above: float
) -> None:
    power = Power(300, 300 * power_share(one), 300 * power_share(other))
    gained = Speedup(ratio, ratio - below * (ratio - 1), ratio + above)
    energy = saved(power, gained)
    slack = 1e-9 * energy.current_kwh_per_run * USE.runs_per_year
    assert energy.kwh_per_year_low - slack <= energy.kwh_per_year
    if energy.kwh_per_year >= 0:
        assert energy.kwh_per_year <= energy.kwh_per_year_high + slack


def test_no_gpu_draws_more_than_its_limit() -> None:
    low, high = BUSY.range
    assert low < 1 < high
    assert BUSY.current * high <= BUSY.limit * (1 + 1e-12)


def test_two_batches_of_like_power_are_compared_more_closely() -> None:
    narrow = Power(400, 400 * power_share(0.8), 400 * power_share(1.0)).ratio_range
    wide = Power(400, 400 * power_share(0.2), 400 * power_share(1.0)).ratio_range
    assert wide[0] < narrow[0] < 1 < narrow[1] < wide[1]


def test_the_load_is_the_share_of_the_fastest_batch() -> None:
    known = [trial(8, 35.0), trial(64, 100.0)]
    power = power_of(300, trial(8, 35.0), trial(32, 70.0), known)
    assert power == Power(300, 300 * power_share(0.35), 300 * power_share(0.7))


def test_a_prediction_does_not_set_the_top_speed_of_a_measurement() -> None:
    now, then = (trial(size, speed, Source.MEASURED) for size, speed in ((8, 50.0), (32, 80.0)))
    power = power_of(300, now, then, [trial(64, 1000.0)])
    assert power == Power(300, 300 * power_share(50 / 80), 300 * power_share(1.0))


def test_without_a_limit_or_a_speed_the_power_is_unknown() -> None:
    assert power_of(None, trial(8, 50.0), trial(32, 80.0), []) is None
    assert power_of(300, trial(8, None), trial(32, 80.0), []) is None
    assert savings(USE, 1.0, Speedup(2, 1.9, 2.1), Source.PREDICTED, taken=True).energy is None


def facts(name: str) -> GpuFacts:
    return GpuFacts(name, 2**34, 2**34)


def test_the_limit_is_the_drivers_else_the_catalogues() -> None:
    ran_on = MeasuredOn("NVIDIA A10", "2.13.0", "5.23.0", 4)
    for name in ("NVIDIA A10", "NVIDIA A10 limited to 8.00 GiB"):
        assert limit_watts(facts(name), None) == GPUS["a10"].power_watts
        assert limit_watts(facts(name), ran_on) == GPUS["a10"].power_watts
    assert limit_watts(facts("NVIDIA A10"), replace(ran_on, power_limit_watts=120.0)) == 120
    for name in ("CPU (x86_64)", "Apple M3", "some GPU"):
        assert limit_watts(facts(name), None) is None
