"""``generate`` and ``longest``: how many texts fit on a GPU, and how long they may be."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..answer.figures import DEVICE_USED, LARGEST_BATCH
from ..core.choices import Goal
from ..core.errors import InvalidInput
from ..core.fields import described_fields
from ..core.numbers import ms, rate, significant
from ..core.sizes import gib
from ..gpus import HOW_TO_LIST, LOCAL
from ..interface.goals import GENERATES, counts
from ..interface.request import AnalysisRequest
from ..interface.texts import GenerationAnswer, LongestThatFits, TextResult, Texts
from ..interface.trial import Source
from ..interface.workload import Workload
from .commands import given_fields
from .flags import ALLOCATOR, BATCH_SIZE, CATALOGUE_GPU, MEMORY_LIMIT, WORKLOAD, Flag, field_flag
from .pushing import Pushing
from .terminal import FAILED, OK, answer, progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_TEXTS = tuple(field_flag(field) for field in described_fields(Texts).values())

GENERATE = (
    CATALOGUE_GPU,
    Flag(BATCH_SIZE.flag, BATCH_SIZE.field, "N", "texts at once; default 1", default="1"),
    *_TEXTS,
    *(flag for flag in WORKLOAD if flag.field in GENERATES),
    MEMORY_LIMIT,
    ALLOCATOR,
)
LONGEST = (
    Flag(BATCH_SIZE.flag, BATCH_SIZE.field, "N", "samples per step; default 1", default="1"),
    CATALOGUE_GPU,
    *(flag for flag in WORKLOAD if counts(flag.field, Goal.LENGTH)),
    MEMORY_LIMIT,
    ALLOCATOR,
)


def generate(options: argparse.Namespace) -> int:
    """Predict generating text. The status is 0 if the batch of texts fits."""
    return _answer(options, Goal.GENERATION)


def longest(options: argparse.Namespace) -> int:
    """Find the longest sequence that fits in training."""
    return _answer(options, Goal.LENGTH)


def _answer(options: argparse.Namespace, goal: Goal) -> int:
    if options.gpu == LOCAL:
        wanted = f"{LOCAL} is measured, not predicted; choose a catalogue GPU; {HOW_TO_LIST}"
        raise InvalidInput({"gpu": wanted})
    request = AnalysisRequest.parse(given_fields(options) | {"goal": goal})
    pushing = Pushing.of(options, given_fields(options))
    with progress() as emit:
        from ..prediction.texts.text_analyses import analyze_texts  # loads torch

        result = analyze_texts(request, emit)
    answer(
        options, result.to_dict(), lambda: _rendered(result, request, _assumed(options, request))
    )
    is_pushed = pushing is None or pushing.send(request, result)
    fits = result.generation is None or result.generation.trial.fits
    return OK if is_pushed and fits else FAILED


_ASSUMED = ("precision", "prompt_length", "new_tokens", "cache_format")
"""Fields that decide how many texts fit and are often left out, by name."""


def _assumed(options: argparse.Namespace, request: AnalysisRequest) -> str:
    """The flags that were left out, with the values that stand for them."""
    values = {field: getattr(request.texts, field, None) for field in _ASSUMED}
    values["precision"] = request.workload.precision
    left_out = [field for field in _ASSUMED if getattr(options, field, "") is None]
    return ", ".join(f"{options.names[field]} {values[field]}" for field in left_out)


def _rendered(result: TextResult, request: AnalysisRequest, assumed: str) -> RenderableType:
    """The answer: what fits, what sets the limits, and what to know about it.

    Args:
        result: The result of the analysis.
        request: The request for it.
        assumed: Description of what was left out.
    """
    from rich.console import Group
    from rich.text import Text

    from .terminal import bullets, section

    parts: list[RenderableType] = []
    if result.generation is not None:
        parts = _generation(result.generation, request)
    elif result.longest is not None:
        parts = _longest(result.longest, result.workload)
    fits = result.generation is None or result.generation.trial.fits
    parts.insert(1, Text(result.verdict, style="bold green" if fits else "bold red"))
    if assumed:
        parts.insert(1, Text(f"By default: {assumed}"))
    return Group(
        *parts,
        section("What sets the limit", Text(result.limited_by)),
        section("About these numbers", bullets(result.caveats)),
    )


def _generation(found: GenerationAnswer, request: AnalysisRequest) -> list[RenderableType]:
    from rich.text import Text

    from .render import figures_table, where_memory_goes
    from .terminal import section

    trial, texts, workload = found.trial, request.texts, request.workload
    fits = "fits" if trial.fits else "does not fit"
    figures = figures_table()
    most = f"{found.largest_batch_size:,} texts at once" if found.largest_batch_size else "none"
    figures.add_row(LARGEST_BATCH.label, most, trial.source)
    end = ", all that the model takes" if found.longest_is_the_models else ""
    longest = f"{found.longest_length:,} tokens{end}" if found.longest_length else "none"
    figures.add_row(f"Longest context at batch {trial.batch_size:,}", longest, trial.source)
    memory = figures_table()
    for name, size in where_memory_goes(trial, found.gpu.total_bytes):
        memory.add_row(name, gib(size), trial.source)
    beams = f"{texts.num_beams:,} beams, " if texts.num_beams > 1 else ""
    said = (
        f"{workload.preset.display_name}, {workload.precision}, {beams}{texts.cache_format} cache, "
        f"on {found.gpu.name} ({gib(found.gpu.total_bytes)})"
    )
    return [
        Text(said),
        Text(f"Batch {trial.batch_size:,} {fits} ({trial.source})."),
        section("Limits", figures),
        *([section("Speed", _speed(found, texts))] if found.tokens_per_second else []),
        section("Memory at the peak", memory),
    ]


def _speed(found: GenerationAnswer, texts: Texts) -> Table:
    from .render import figures_table

    prompt, token = found.prompt_seconds or 0.0, found.token_seconds or 0.0
    low, high = found.tokens_per_second_low or 0.0, found.tokens_per_second_high or 0.0
    table = figures_table()
    table.add_row("Time to first token", ms(prompt), Source.PREDICTED)
    if texts.new_tokens > 1:
        limit = "kernel launches limit it" if found.waits_for_host else "the GPU limits it"
        if found.waits_for_link:
            limit = "copies to and from the host limit it"
        table.add_row("Each further token", f"{ms(token)}, {limit}", Source.PREDICTED)
    speed = found.tokens_per_second or 0.0
    shown = f"{rate(speed, 'tokens')}, {significant(low)} to {significant(high)}"
    table.add_row("New tokens of all texts", shown, Source.PREDICTED)
    return table


def _longest(found: LongestThatFits, workload: Workload) -> list[RenderableType]:
    from rich.text import Text

    from .render import describe, figures_table
    from .terminal import section

    figures = figures_table()
    for length, trial in ((found.length, found.trial), (found.next_length, found.next_trial)):
        if trial is not None and trial.device_used_bytes is not None:
            fits = "fits" if trial.fits else "does not fit"
            needs = f"{gib(trial.device_used_bytes)}, {fits}"
            figures.add_row(f"{length:,} tokens", needs, trial.source)
    return [
        Text(
            f"{describe(workload).rpartition(', sequence length')[0]}, on {found.gpu.name} "
            f"({gib(found.gpu.total_bytes)})"
        ),
        section(DEVICE_USED.label, figures),
    ]
