"""``generate`` and ``longest``: how many texts fit on a GPU, and how long they may be."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..fields import described_fields
from ..gpus import GPUS, LOCAL
from ..request import AnalysisRequest
from ..texts import GenerationAnswer, LongestThatFits, Texts
from ..workload import Workload
from .commands import FAILED, OK, given_fields, request_of
from .flags import ALLOCATOR, BATCH_SIZE, CATALOGUE_GPU, MEMORY_LIMIT, WORKLOAD, Flag, field_flag
from .terminal import answer, progress

if TYPE_CHECKING:
    from rich.console import RenderableType

_GENERATES = (
    "precision", "attention", "lora_rank", "lora_targets", "adapter", "quantization", "software",
    "config",
)  # fmt: skip
"""The fields of a workload that matter where nothing is trained."""

_TEXTS = tuple(field_flag(field) for field in described_fields(Texts).values())

GENERATE = (
    CATALOGUE_GPU,
    Flag(BATCH_SIZE.flag, BATCH_SIZE.field, "N", "texts at once; default 1", default="1"),
    *_TEXTS,
    *(flag for flag in WORKLOAD if flag.field in _GENERATES),
    MEMORY_LIMIT,
    ALLOCATOR,
)
LONGEST = (
    Flag(BATCH_SIZE.flag, BATCH_SIZE.field, "N", "samples per step; default 1", default="1"),
    CATALOGUE_GPU,
    *(flag for flag in WORKLOAD if flag.field != "sequence_length"),
    MEMORY_LIMIT,
    ALLOCATOR,
)


def generate(options: argparse.Namespace) -> int:
    """Predict generating text. The status is 0 if so many texts fit."""
    given = _predictable(options)
    names = described_fields(Texts)
    texts = Texts(**{name: given.pop(name) for name in names if given.get(name) is not None})  # type: ignore[arg-type]  # checked there
    left = {name: value for name, value in given.items() if name not in names}
    request = AnalysisRequest.parse(left)
    with progress() as emit:
        from ..prediction.inference import predict_generation  # loads torch

        found = predict_generation(request, texts, emit)
    answer(options, found.to_dict(), lambda: _generation(found, texts, request.workload))
    return OK if found.trial.fits else FAILED


def longest(options: argparse.Namespace) -> int:
    """Find the longest sequence that fits in training. The status is 0 if any does."""
    _predictable(options)
    request = request_of(options)
    with progress() as emit:
        from ..prediction.longest import longest_sequence  # loads torch

        found = longest_sequence(request, emit)
    answer(options, found.to_dict(), lambda: _longest(found, request.workload))
    return OK if found.length else FAILED


def _predictable(options: argparse.Namespace) -> dict[str, object]:
    """The fields of the command, for a GPU that is not measured."""
    if options.gpu == LOCAL:
        wanted = f"{LOCAL} is measured, not predicted; choose one of {', '.join(GPUS)}"
        raise InvalidInput({"gpu": wanted})
    return given_fields(options)


def _generation(found: GenerationAnswer, texts: Texts, workload: Workload) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from .render import figures_table, gib, where_memory_goes
    from .terminal import section

    trial = found.trial
    fits = "fits" if trial.fits else "does not fit"
    figures = figures_table()
    most = f"{found.largest_batch_size:,} texts at once" if found.largest_batch_size else "none"
    figures.add_row("Largest batch", most, trial.source)
    end = ", all that the model takes" if found.longest_is_the_models else ""
    longest = f"{found.longest_length:,} tokens{end}" if found.longest_length else "none"
    figures.add_row(f"Longest context at batch {trial.batch_size:,}", longest, trial.source)
    memory = figures_table()
    for name, size in where_memory_goes(trial, found.gpu.total_bytes):
        memory.add_row(name, gib(size), trial.source)
    said = (
        f"{workload.preset.display_name}, {workload.precision}, generating {texts.new_tokens:,} "
        f"tokens after {texts.prompt_length:,}, {texts.cache_format} cache, on {found.gpu.name} "
        f"({gib(found.gpu.total_bytes)})"
    )
    return Group(
        Text(said),
        Text(
            f"Batch {trial.batch_size:,} {fits} ({trial.source}).",
            style="bold green" if trial.fits else "bold red",
        ),
        section("Limits", figures),
        section("Memory at the peak", memory),
    )


def _longest(found: LongestThatFits, workload: Workload) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from .render import describe, figures_table, gib
    from .terminal import section

    figures = figures_table()
    for length, trial in ((found.length, found.trial), (found.next_length, found.next_trial)):
        if trial is not None and trial.device_used_bytes is not None:
            fits = "fits" if trial.fits else "does not fit"
            needs = f"{gib(trial.device_used_bytes)}, {fits}"
            figures.add_row(f"{length:,} tokens", needs, trial.source)
    return Group(
        Text(
            f"{describe(workload).rpartition(', sequence length')[0]}, on {found.gpu.name} "
            f"({gib(found.gpu.total_bytes)})"
        ),
        Text(_verdict(found), style="bold green" if found.length else "bold red"),
        section("Device used", figures),
    )


def _verdict(found: LongestThatFits) -> str:
    if not found.length:
        return f"No sequence fits at batch {found.batch_size:,}. (Predicted)"
    up_to = f"Sequences up to {found.length:,} tokens fit at batch {found.batch_size:,}"
    if found.next_length is None:
        return f"{up_to}: the model takes no longer ones. (Predicted)"
    return f"{up_to}; {found.next_length:,} do not. (Predicted)"
