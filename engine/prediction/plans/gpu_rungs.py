"""Other GPUs as rungs of the ladder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...answer.economics import GPUS_NOISE, Speedup, speedup, within
from ...answer.ladder import Effort, Move, Rung, switch_to
from ...answer.plan import GpuOption
from ...answer.worth import is_worth_it
from ...core.numbers import times, usd
from ...gpus import short_name
from ...interface.trial import Source
from .gpu_comparison import best_known
from .ladder import AnyClimb


def other_gpus(climb: AnyClimb, options: Sequence[GpuOption]) -> list[Rung]:
    """The GPU with the cheapest million samples, and the fastest, of those that surely fit.

    Args:
        climb: The ladder on the GPU used today.
        options: Every GPU.
    """
    request = climb.request
    fitting = [option for option in options if option.fits]
    own = next((option for option in fitting if option.gpu == request.gpu), None)
    compared = best_known(options)
    priced = [option for option in compared if option.usd_per_million_samples is not None]
    best = [
        min(priced, key=lambda option: option.usd_per_million_samples or 0.0, default=None),
        max(compared, key=lambda option: option.samples_per_second or 0.0, default=None),
    ]
    chosen = {option.gpu: option for option in best if option is not None and option != own}
    hours = request.assumptions.hours_per_run
    price = None if own is None else own.price_per_hour_usd
    usd_today = None if price is None else hours * price
    return [_on_gpu(climb, option, usd_today) for option in chosen.values()]


def _on_gpu(climb: AnyClimb, option: GpuOption, usd_today: float | None) -> Rung:
    """The rung of another GPU; ``usd_today`` is what a run costs today."""
    today = climb.today.samples_per_second
    batch_size, speed = option.recommended_batch_size or 0, option.samples_per_second or 0.0
    move = Move(short_name(option.gpu_name), {"gpu": option.gpu}, effort=Effort.MACHINE)
    moves = [move, *climb.batch_move(climb.unchanged, batch_size)]
    names = [one.name for one in moves]
    rung = Rung(
        names,
        move.fields,
        fits=True,
        batch_size=batch_size,
        gpu=option.gpu,
        samples_per_second=speed,
        usd_per_run=option.usd_per_run,
        usd_per_million_samples=option.usd_per_million_samples,
    )
    rung = climb.about_learning(rung, moves, climb.global_batch(climb.unchanged, batch_size))
    if today is None:
        return replace(rung, decision=f"Switch to {names[0]}: batch {batch_size:,} fits.")
    gained = speedup(today, speed, within(GPUS_NOISE))
    how = f"{times(gained.ratio)} {'faster' if gained.ratio >= 1 else 'the speed'}"
    if option.usd_per_run is not None:
        how += f", {usd(option.usd_per_run)} a run"
    decision = switch_to(names, how)
    if not (_is_worth_it(gained) or _is_cheaper(usd_today, option.usd_per_run)):
        decision = f"Keep today's GPU: {names[0]} is not surely faster or cheaper."
    return replace(
        rung,
        decision=decision,
        speedup=gained.ratio,
        speedup_low=gained.low,
        speedup_high=gained.high,
    )


def _is_worth_it(gained: Speedup) -> bool:
    return is_worth_it(gained, Source.PREDICTED)


def _is_cheaper(usd_today: float | None, usd_per_run: float | None) -> bool:
    """Whether a run costs enough less to be worth a change; prices are taken as they are."""
    if not (usd_today and usd_per_run):
        return False
    return _is_worth_it(speedup(usd_per_run, usd_today, within(GPUS_NOISE)))
