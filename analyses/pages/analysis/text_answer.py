"""An answer about texts: how many can be generated, or how long they may be."""

from __future__ import annotations

from dataclasses import dataclass

from analyses.charts.breakdown import BreakdownRow, MemoryBar, breakdown_rows, memory_bar
from analyses.charts.by_length import picture_of_lengths
from analyses.charts.picture import Fit, Picture, fit_of
from analyses.models import Analysis
from analyses.pages.analysis.decision import Fact, memory_range
from analyses.results.stored import text_result_of
from engine.answer.figures import CURRENT_HEADROOM
from engine.core.numbers import share, significant, whole
from engine.interface.texts import GenerationAnswer, LengthTrial, LongestThatFits, TextResult
from engine.interface.trial import GpuFacts, Trial
from engine.versions.software import format_versions

_TOO_MUCH = "run out of memory"


@dataclass(frozen=True)
class TextRow:
    """One length or one number of texts.

    Attributes:
        value: The length or the number of texts.
        is_limit: Whether it is the largest that fits.
    """

    value: int
    trial: Trial
    fit: Fit
    is_limit: bool

    @property
    def tone(self) -> str:
        return {Fit.FITS: "good", Fit.UNCERTAIN: "warn", Fit.FAILS: "bad"}[self.fit]


@dataclass(frozen=True)
class TextAnswer:
    """The answer of an analysis about texts that succeeded.

    Attributes:
        tone: Its tone: ``change``, or ``problem`` where the requested batch does not fit.
        sureness: The range of the numbers; empty where unknown.
        software: The versions it is for, as text.
        batches: Rows by the number of texts; empty for training.
    """

    result: TextResult
    tone: str
    sureness: str
    software: str
    facts: list[Fact]
    picture: Picture | None
    bars: list[MemoryBar]
    breakdown: list[BreakdownRow]
    lengths: list[TextRow]
    batches: list[TextRow]


def text_answer_of(analysis: Analysis) -> TextAnswer | None:
    """The answer of an analysis; ``None`` without a result about texts that can be read."""
    result = text_result_of(analysis)
    if result is None:
        return None
    if result.generation is not None:
        return _of_generation(result, result.generation, analysis)
    return _of_longest(result, result.longest) if result.longest else None


def _of_generation(result: TextResult, found: GenerationAnswer, analysis: Analysis) -> TextAnswer:
    gpu, batch = found.gpu, whole(found.trial.batch_size)
    asked = analysis.request["prompt_length"] + analysis.request["new_tokens"]
    ends = "all that the model takes" if found.longest_is_the_models else f"longer {_TOO_MUCH}"
    most, longest = found.largest_batch_size, found.longest_length
    facts = [
        _limit(
            "Texts at once", found.surely_fits, most, "surely fit", f"{whole(most + 1)} {_TOO_MUCH}"
        ),
        _limit(
            f"Longest at batch {batch}",
            found.longest_that_surely_fits,
            longest,
            "tokens surely fit",
            ends,
        ),
        _free(f"Free at batch {batch}", found.trial, gpu),
    ]
    if found.tokens_per_second:
        low, high = found.tokens_per_second_low, found.tokens_per_second_high
        span = f"new tokens/s of all texts, {significant(low)} to {significant(high)}"
        speed = significant(found.tokens_per_second)
        facts.append(Fact(f"Speed at batch {batch}", speed, span))
    largest = next((t for t in found.batches if t.batch_size == found.largest_batch_size), None)
    both = [found.trial, *([largest] if largest and largest != found.trial else [])]
    bars = [memory_bar("recommended", "Texts at once", trial, gpu.total_bytes) for trial in both]
    return _answer(result, found.trial, gpu, facts, bars, found.lengths, found.batches, asked)


def _of_longest(result: TextResult, found: LongestThatFits) -> TextAnswer | None:
    if found.trial is None:
        return None
    ends = (
        "the model takes no longer ones"
        if found.next_length is None
        else f"{whole(found.next_length)} {_TOO_MUCH}"
    )
    facts = [
        _limit("Longest sequence", found.surely_fits, found.length, "tokens surely fit", ends),
        _free(f"Free at {whole(found.length)} tokens", found.trial, found.gpu),
    ]
    bars = [memory_bar("recommended", "Batch", found.trial, found.gpu.total_bytes)]
    return _answer(result, found.trial, found.gpu, facts, bars, found.lengths, [], None)


def _answer(
    result: TextResult,
    trial: Trial,
    gpu: GpuFacts,
    facts: list[Fact],
    bars: list[MemoryBar],
    lengths: list[LengthTrial],
    batches: list[Trial],
    asked: int | None,
) -> TextAnswer:
    generation, off = result.generation, memory_range(trial)
    most = generation.largest_batch_size if generation else 0
    return TextAnswer(
        result=result,
        tone="change" if trial.fits else "problem",
        sureness=f"{off.capitalize()}." if off else "",
        software=format_versions(result.software),
        facts=facts,
        picture=picture_of_lengths(result, lengths, gpu, asked),
        bars=bars,
        breakdown=breakdown_rows(bars),
        lengths=[_row(one.length, one.trial, gpu, result.longest_tokens) for one in lengths],
        batches=[_row(one.batch_size, one, gpu, most) for one in batches],
    )


def _limit(name: str, sure: int, most: int, surely: str, ends: str) -> Fact:
    """A limit: the number that surely fits first, then the largest that may, and what ends it.

    Args:
        name: Name of what is limited.
        sure: 0 if none is.
        most: The largest that fits as predicted.
        surely: The words after the number that surely fits.
        ends: The reason for no more.
    """
    may = f"up to {whole(most)} may; " if sure < most else ""
    if not sure:
        return Fact(name, "none surely", f"{may}{ends}")
    return Fact(name, whole(sure), f"{surely}; {may}{ends}")


def _row(value: int, trial: Trial, gpu: GpuFacts, largest: int) -> TextRow:
    return TextRow(value, trial, fit_of(trial, gpu.total_bytes), value == largest)


def _free(name: str, trial: Trial, gpu: GpuFacts) -> Fact:
    free = gpu.total_bytes - (trial.device_used_bytes or gpu.total_bytes)
    if free < 0:
        return Fact(name, "none", "it does not fit")
    return Fact(name, CURRENT_HEADROOM.text(free), f"{share(free / gpu.total_bytes)} of the GPU")
