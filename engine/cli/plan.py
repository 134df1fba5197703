"""A plan as tables for a terminal: the ladder on one GPU, and the workload on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..answer.figures import (
    COST,
    LARGEST_BATCH,
    RECOMMENDED_BATCH,
    RECOMMENDED_COST,
    SPEED,
    SPEEDUP,
)
from ..answer.ladder import by_gain
from ..answer.offers import offers_of_ladder
from ..answer.superlatives import CHEAPEST_PER_SAMPLE, FASTEST, LOWEST_PRICE
from ..core.numbers import UNKNOWN, times_range, usd
from ..core.sizes import gib
from ..gpus import GPUS, short_name
from ..interface.tokens import Tokens, tokens_of
from ..interface.trial import Source
from ..versions.software import format_versions
from .terminal import bullets, section, speed_headings, speeds, table

if TYPE_CHECKING:
    from ..answer.ladder import Rung
    from ..answer.plan import GpuOption, Plan


def render_plan(plan: Plan) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"{_trained(plan)}\nWith {format_versions(plan.software)}"),
        Text(_verdict(plan), style="bold green" if plan.cheapest else "bold red"),
        *_ladder(plan),
        *_room(plan),
        section(f"GPUs (speed {Source.PREDICTED}, prices {Source.ASSUMED})", _gpus(plan)),
    ]
    refused = [option for option in plan.options if not option.fits]
    if refused:
        reasons = (f"{option.gpu_name}: {option.why_not}" for option in refused)
        parts.append(section("GPUs that cannot be used", bullets(reasons)))
    if plan.global_batch is not None:
        kept = plan.global_batch
        text = f"{kept.gradient_accumulation:,} micro-batches keep the global batch of "
        text += f"{kept.size:,} on the current GPU. {kept.otherwise}"
        parts.append(section("Global batch", Text(text)))
    parts.append(section("About these numbers", bullets(plan.caveats)))
    return Group(*parts)


def _trained(plan: Plan) -> str:
    if plan.workload is None:
        return f"{plan.model_name} (script)"
    return f"{plan.model_name}, {plan.workload.precision}, {plan.workload.optimizer} optimizer"


def _verdict(plan: Plan) -> str:
    by_name = {option.gpu: option for option in plan.options}
    named = []
    if plan.cheapest is not None:
        price = usd(by_name[plan.cheapest].price_per_hour_usd)
        named.append(f"{LOWEST_PRICE}: {_name(plan.cheapest)}, {price} per hour")
    if plan.best_value is not None:
        cost = COST.text(by_name[plan.best_value].usd_per_million_samples)
        named.append(f"{CHEAPEST_PER_SAMPLE}: {_name(plan.best_value)}, {cost} per million")
    if plan.fastest is not None:
        speed = SPEED.with_unit(by_name[plan.fastest].samples_per_second)
        named.append(f"{FASTEST}: {_name(plan.fastest)}, {speed}")
    if not named:
        return "It fits on no GPU in the catalogue."
    sure = any(option.is_sure for option in plan.options)
    among = "Of the GPUs that surely fit" if sure else "No GPU surely fits. Of those that may"
    return f"{among}, {'; '.join(named)} ({Source.PREDICTED}, prices {Source.ASSUMED})."


def _name(gpu: str) -> str:
    return short_name(GPUS[gpu].display_name)


def _gpus(plan: Plan) -> RenderableType:
    """Every GPU that it fits on; a column of words would find no room in a narrow terminal."""
    shown = table(dense=True)
    shown.add_column("gpu", no_wrap=True, style="cyan")
    counted = tokens_of(plan.workload)
    headings = ["largest\nbatch", "recom-\nmended", *speed_headings(counted), "price\nper\nhour"]
    headings += ["cost per\n1M\nsamples"]
    headings += ["cost\nper\nrun"] if plan.current_gpu is not None else []
    for heading in headings:
        shown.add_column(f" {heading}".replace("\n", "\n "), justify="right", no_wrap=True)
    fitting = [option for option in plan.options if option.fits]
    for option in fitting:
        shown.add_row(*_gpu_row(option, plan, counted))
    unsure = ", ".join(option.gpu for option in fitting if option.is_sure is False)
    return Group(shown, *([Text(f"May not fit: {unsure}.")] if unsure else []))


def _gpu_row(option: GpuOption, plan: Plan, counted: Tokens | None) -> list[str]:
    row = [
        option.gpu if option.gpu != plan.current_gpu else f"{option.gpu} (yours)",
        LARGEST_BATCH.number(option.largest_batch_size),
        RECOMMENDED_BATCH.number(option.recommended_batch_size),
        *speeds(option.samples_per_second, counted),
        usd(option.price_per_hour_usd),
        COST.number(option.usd_per_million_samples),
    ]
    return (
        [*row, RECOMMENDED_COST.number(option.usd_per_run)] if plan.current_gpu is not None else row
    )


def _ladder(plan: Plan) -> list[RenderableType]:
    """The rungs that fit as a table, and why the others do not."""
    fitting = by_gain(rung for rung in plan.ladder if rung.fits)
    refused = [rung for rung in plan.ladder if not rung.fits]
    parts: list[RenderableType] = []
    if fitting and plan.current_gpu is not None:
        name = GPUS[plan.current_gpu].display_name
        parts += _offers(plan)
        title = f"The best moves from batch {plan.current_batch_size:,} on {name}"
        parts.append(section(f"{title} ({Source.PREDICTED})", _rungs(fitting)))
    if told := [_effect(rung) for rung in fitting if rung.training]:
        parts.append(section("What they do to training", bullets(told)))
    if lines := [*dict.fromkeys(line for rung in fitting for line in _lines(rung))]:
        parts.append(section("Lines that make them in the script", bullets(lines)))
    if refused:
        reasons = (f"{_moves(rung)}: {rung.why_not}" for rung in refused)
        parts.append(section("Moves that do not help", bullets(reasons)))
    return parts


def _lines(rung: Rung) -> list[str]:
    return [] if rung.result is None else rung.result.move_lines


def _effect(rung: Rung) -> str:
    """The effect of a rung on training and its learning rate."""
    return ". ".join(filter(None, [f"{_moves(rung)}: {rung.training}", rung.learning_rate]))


def _offers(plan: Plan) -> list[RenderableType]:
    """The best rung that keeps the global batch, and the best that changes it."""
    lines = []
    for offer, rung in offers_of_ladder(plan.ladder):
        found = rung.decision if rung else offer.why_none
        if offer.change and not rung:
            found = f"Switch to {offer.change}: {SPEEDUP.text(offer.speedup)} faster."
        lines.append(f"{offer.title}: {found} {offer.learning_rate}".rstrip())
    if not lines:
        compares = any(rung.speedup for rung in plan.ladder)
        lines = [f"Nothing that was tried {'is surely faster' if compares else 'surely fits'}."]
    return [section(f"What to change ({Source.PREDICTED})", bullets(lines))]


def _room(plan: Plan) -> list[RenderableType]:
    """Uses for the memory left free."""
    room = plan.room
    if room is None:
        return []
    uses = []
    if room.sequence_length is not None:
        uses.append(f"Sequences of {room.sequence_length:,} tokens surely fit.")
    if room.model is not None:
        uses.append(f"{room.model_name} surely fits.")
    if room.gpu is not None:
        uses.append(
            f"{room.gpu_name} has at least 95% of this speed, for "
            f"{usd(room.gpu_price_per_hour_usd)} per hour ({Source.ASSUMED})."
        )
    if room.runs > 1:
        uses.append(f"{room.runs:,} such runs share the GPU's memory, though not its speed.")
    title = f"{gib(room.free_bytes, 1)} are free at batch {room.batch_size:,}"
    return [section(f"{title} ({Source.PREDICTED})", bullets(uses))] if uses else []


def _rungs(rungs: Sequence[Rung]) -> Table:
    shown = table(dense=True)
    shown.add_column("moves", style="cyan")
    for heading in ("speedup", "range", "cost\nper run"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column(" changes about\n learning", no_wrap=True)
    shown.add_column(" effort", no_wrap=True)
    for rung in rungs:
        speedup, low, high = rung.speedup, rung.speedup_low, rung.speedup_high
        shown.add_row(
            _moves(rung),
            SPEEDUP.number(speedup),
            UNKNOWN if low is None or high is None else times_range(low, high),
            RECOMMENDED_COST.number(rung.usd_per_run),
            f" {rung.learning}",
            f" {rung.effort}",
        )
    return shown


def _moves(rung: Rung) -> str:
    return ", ".join(rung.moves) or "as it is"
