"""The values of the numbers that people see, computed from one answer.

:mod:`engine.answer.figures` describes each number, and names its function here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..core.numbers import UNKNOWN, share, significant, times, whole
from ..interface.result import AnalysisResult, BatchLengths, Energy, Savings
from ..interface.tokens import Tokens
from ..interface.trial import Source, Trial
from .economics import usd_per_million_samples
from .phases import in_phase
from .worth import Gain, gain_of


@dataclass(frozen=True)
class Amount:
    """One number of one answer.

    Attributes:
        value: ``None`` where only words say it, such as ``does not fit``.
        sources: Two where a measured or predicted ratio meets an assumed price.
        low, high: Its interval, where it has one.
        words: What to show instead of the value; empty to show that.
        note: What to know about it; empty where there is nothing.
    """

    value: float | None
    sources: tuple[Source, ...]
    low: float | None = None
    high: float | None = None
    words: str = ""
    note: str = ""


@dataclass(frozen=True)
class Answered:
    """An answer, and what else its numbers are computed from.

    Attributes:
        result: ``None`` while there is none, or where it is about texts.
        price_per_hour_usd: Of one GPU; ``None`` where unknown.
        gpu_count: GPUs that share the work.
        tokens: How tokens are counted; ``None`` where they are not.
        largest_texts, longest_tokens: The answer about texts; ``None`` where it is not about them.
        text_source: The source of these.
        is_adopted: Whether the decision is marked as adopted; ``None`` where nobody could.
    """

    result: AnalysisResult | None
    price_per_hour_usd: float | None = None
    gpu_count: int = 1
    tokens: Tokens | None = None
    largest_texts: int | None = None
    longest_tokens: int | None = None
    text_source: Source | None = None
    is_adopted: bool | None = None

    @property
    def recommended(self) -> Trial | None:
        """The trial of the recommended batch."""
        return trial_at(self.result, self.result.recommended_batch_size) if self.result else None

    @property
    def current(self) -> Trial | None:
        """The trial of the current batch, without the moves of a decision.

        ``None`` also where there is no such batch yet.
        """
        size = self.result.current_batch_size if self.result else None
        if not (self.result and size):
            return None
        return self.result.today or trial_at(self.result, size)


Of = Callable[[Answered], Amount | None]
"""A function that computes a number; ``None`` where the answer does not have it."""


def trial_at(result: AnalysisResult, batch_size: int) -> Trial | None:
    """The trial of one batch size, measured rather than predicted."""
    known = [trial for trial in [*result.trials, *result.curve] if trial.batch_size == batch_size]
    measured = [trial for trial in known if trial.source is Source.MEASURED]
    return next(iter(measured + known), None)


def source_at(result: AnalysisResult, batch_size: int) -> Source:
    trial = trial_at(result, batch_size)
    return trial.source if trial else result.source


def recommended_batch(answered: Answered) -> Amount | None:
    result = answered.result
    if result is None:
        return None
    size = result.recommended_batch_size
    return Amount(size, (source_at(result, size),))


def largest_batch(answered: Answered) -> Amount | None:
    result = answered.result
    if result is None:
        return None
    note = "" if result.next_batch_size_fails else beyond_largest(result)
    return Amount(result.largest_batch_size, (result.source,), note=note)


def beyond_largest(result: AnalysisResult) -> str:
    """Facts about the batch after the largest one that fits."""
    where = in_phase(result.limiting_phase)
    following = f"{whole(result.next_batch_size)} runs out of memory{where}"
    return following if result.next_batch_size_fails else "nothing larger was tried"


def current_batch(answered: Answered) -> Amount | None:
    result = answered.result
    if result is None:
        return None
    size = result.current_batch_size
    if size is None:
        return Amount(None, (), words="none yet")
    trial = trial_at(result, size)
    note = "does not fit" if trial is not None and not trial.fits else ""
    return Amount(size, (source_at(result, size),), note=note)


def current_headroom(answered: Answered) -> Amount | None:
    """Memory free at the current batch, where that fits."""
    result = answered.result
    if result is None or result.current_batch_size is None:
        return None
    free = result.current_headroom_bytes
    return None if free is None else _headroom(result, result.current_batch_size, free)


def largest_headroom(answered: Answered) -> Amount | None:
    result = answered.result
    if result is None:
        return None
    return _headroom(result, result.largest_batch_size, result.largest_headroom_bytes)


def _headroom(result: AnalysisResult, batch_size: int, free: int) -> Amount:
    note = of_the_gpu(free, result)
    return Amount(free, (source_at(result, batch_size),), note=note)


def of_the_gpu(size: float, result: AnalysisResult) -> str:
    """A size in bytes as a share of the GPU's memory."""
    return f"{share(size / result.gpu.total_bytes)} of the GPU"


def speedup(answered: Answered) -> Amount | None:
    """Over the current batch; its words say whether it is worth a change."""
    result = answered.result
    if result is None or result.speedup is None:
        return None
    gain = gain_of(result)
    source = result.savings.source if result.savings else result.source
    return Amount(result.speedup, (source,), words=speedup_words(result.speedup, gain))


def speedup_words(ratio: float | None, gain: Gain) -> str:
    """A speedup: its ratio, ``probably`` that, or ``no gain`` if it is not worth a change."""
    if ratio is None:
        return UNKNOWN
    return {
        Gain.SURE: times(ratio),
        Gain.PROBABLE: f"probably {times(ratio)}",
        Gain.NONE: "no gain",
    }[gain]


def samples_per_second(answered: Answered) -> Amount | None:
    return _speed_of(answered.recommended)


def current_samples_per_second(answered: Answered) -> Amount | None:
    trial = answered.current
    if trial is None:
        return None
    return _speed_of(trial) if trial.fits else Amount(None, (trial.source,), words="does not fit")


def _speed_of(trial: Trial | None) -> Amount | None:
    """Samples per second of one batch, with the range that its step time has."""
    speed = trial.samples_per_second if trial else None
    if trial is None or speed is None:
        return None
    if not (trial.step_seconds and trial.step_seconds_low and trial.step_seconds_high):
        return Amount(speed, (trial.source,))
    samples = speed * trial.step_seconds
    low, high = samples / trial.step_seconds_high, samples / trial.step_seconds_low
    return Amount(speed, (trial.source,), low, high, note=_range(significant, low, high))


def _range(text: Callable[[float], str], low: float, high: float) -> str:
    return f"{text(low)}\N{EN DASH}{text(high)}"


def tokens_per_second(answered: Answered) -> Amount | None:
    samples, tokens = samples_per_second(answered), answered.tokens
    speed = tokens.per_second(samples.value) if tokens and samples else None
    if tokens is None or samples is None or speed is None:
        return None
    low, high = tokens.per_second(samples.low), tokens.per_second(samples.high)
    ends = "" if low is None or high is None else f"{_range(significant, low, high)} "
    return Amount(speed, samples.sources, low, high, note=f"{ends}{tokens.unit}")


def usd_per_million(speed: Of, text: Callable[[float], str]) -> Of:
    """The cost of a million samples or tokens, which compares across GPUs as hours do not.

    Args:
        speed: How many of them pass in a second.
        text: Formats the ends of its range.
    """

    def of(answered: Answered) -> Amount | None:
        found, price = speed(answered), answered.price_per_hour_usd
        if found is None or found.words:
            return found
        if not found.value or price is None:
            return None
        price *= answered.gpu_count
        cost = usd_per_million_samples(price, found.value)
        sources = (*found.sources, Source.ASSUMED)
        if not (found.low and found.high):
            return Amount(cost, sources)
        low, high = (usd_per_million_samples(price, end) for end in (found.high, found.low))
        return Amount(cost, sources, low, high, note=_range(text, low, high))

    return of


def at_recommended(name: str) -> Of:
    """A number of the recommended batch's trial, by the name that it has there."""

    def of(answered: Answered) -> Amount | None:
        trial = answered.recommended
        value = getattr(trial, name) if trial else None
        if trial is None or value is None:
            return None
        note = ""
        if name == "device_used_bytes" and answered.result:
            note = of_the_gpu(value, answered.result)
        return Amount(value, (trial.source,), note=note)

    return of


def of_texts(name: str) -> Of:
    def of(answered: Answered) -> Amount | None:
        value, source = getattr(answered, name), answered.text_source
        return None if value is None or source is None else Amount(value, (source,))

    return of


def worst_tokens(answered: Answered) -> Amount | None:
    lengths = _lengths(answered)
    if lengths is None:
        return None
    note = f"{share(lengths.probability)} of runs have none longer"
    return Amount(lengths.worst_tokens, (Source.PREDICTED,), note=note)


def padding(answered: Answered) -> Amount | None:
    lengths = _lengths(answered)
    return Amount(lengths.padding, (Source.PREDICTED,)) if lengths else None


def _lengths(answered: Answered) -> BatchLengths | None:
    return answered.result.lengths if answered.result else None


def current_usd_per_run(answered: Answered) -> Amount | None:
    """Hours times price, both assumed."""
    savings = _savings(answered)
    return Amount(savings.current_usd_per_run, (Source.ASSUMED,)) if savings else None


def of_savings(name: str) -> Of:
    def of(answered: Answered) -> Amount | None:
        savings = _savings(answered)
        if savings is None:
            return None
        return Amount(getattr(savings, name), (savings.source, Source.ASSUMED))

    return of


def per_year(name: str) -> Of:
    """Savings per year, realised or potential where somebody could adopt the decision."""
    of_a_year = of_savings(name)

    def of(answered: Answered) -> Amount | None:
        found = of_a_year(answered)
        if found is None or answered.is_adopted is None:
            return found
        return replace(found, note="realised" if answered.is_adopted else "potential")

    return of


def of_energy(name: str) -> Of:
    """The energy of the GPUs: their power is predicted, also where speeds were measured."""

    def of(answered: Answered) -> Amount | None:
        energy = _energy(answered)
        if energy is None:
            return None
        return Amount(getattr(energy, name), (Source.PREDICTED, Source.ASSUMED))

    return of


def _savings(answered: Answered) -> Savings | None:
    return answered.result.savings if answered.result else None


def _energy(answered: Answered) -> Energy | None:
    savings = _savings(answered)
    return savings.energy if savings else None
