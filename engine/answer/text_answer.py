"""Answer about texts: what fits, and what sets the limits."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.choices import Goal
from ..core.sizes import gib_of
from ..interface.request import AnalysisRequest
from ..interface.texts import GenerationAnswer, LongestThatFits, TextResult
from ..interface.trial import GpuFacts, Trial
from .ladder import listed

_WORTH_NAMING = 0.1
"""Categories with less than this share of the memory are not named."""


def conclude_generation(
    request: AnalysisRequest, found: GenerationAnswer, read: str, caveats: Sequence[str]
) -> TextResult:
    """The answer about generating texts.

    Args:
        request: The request.
        found: The batches that fit.
        read: Tokens read for each text, as text.
        caveats: Limits of the answer.
    """
    texts, trial, most = request.texts, found.trial, found.largest_batch_size
    sure = found.surely_fits
    lengths = f"{read} and {texts.new_tokens:,} new ones each"
    decision = f"Generate up to {sure:,} {_texts(sure)} at once, with {lengths}."
    if not sure:
        decision = f"No number of texts is certain to fit, with {lengths}: {most:,} may."
    elif trial.batch_size > most:
        decision = (
            f"Generate at most {sure:,} {_texts(sure)} at once, not {trial.batch_size:,}, with "
            f"{lengths}."
        )
    may = f" Up to {most:,} may fit." if 0 < sure < most else ""
    context = _context(found, "prompt" in read)
    at_most = next((one for one in found.batches if one.batch_size == most), trial)
    return TextResult(
        goal=Goal.GENERATION,
        model_name=request.workload.preset.display_name,
        workload=request.workload,
        source=trial.source,
        decision=decision,
        verdict=f"{decision}{may} {most + 1:,} run out of memory. {context} ({_named(trial)})",
        limited_by=limited_by(at_most, found.gpu, f"With {most:,} {_texts(most)}"),
        caveats=list(caveats),
        generation=found,
    )


def conclude_longest(
    request: AnalysisRequest, found: LongestThatFits, trial: Trial, caveats: Sequence[str]
) -> TextResult:
    """The answer about the longest sequence in training; ``trial`` is that of the longest."""
    sure, most = found.surely_fits, found.length
    at = f"tokens at batch {found.batch_size:,}"
    decision = f"Train with sequences of up to {sure:,} {at}."
    if not sure:
        decision = f"No length is certain to fit: {most:,} {at} may."
    may = f"Up to {most:,} may fit. " if 0 < sure < most else ""
    limit = (
        "The model takes no longer sequences."
        if found.next_length is None
        else f"{found.next_length:,} run out of memory."
    )
    return TextResult(
        goal=Goal.LENGTH,
        model_name=request.workload.preset.display_name,
        workload=request.workload,
        source=trial.source,
        decision=decision,
        verdict=f"{decision} {may}{limit} ({_named(trial)})",
        limited_by=limited_by(trial, found.gpu, f"At {found.length:,} tokens"),
        caveats=list(caveats),
        longest=found,
    )


def limited_by(trial: Trial, gpu: GpuFacts, when: str) -> str:
    """The largest uses of a trial's memory, the largest first.

    Args:
        trial: On one side of a limit.
        gpu: The GPU of the trial.
        when: A description of the trial, such as a clause.
    """
    allocated = trial.peak_allocated_bytes or 0
    shares = sorted(trial.breakdown.items(), key=lambda one: -one[1])
    named = [
        f"{_NAMES.get(name, name)} {size / allocated:.0%}"
        for name, size in shares
        if allocated and size >= _WORTH_NAMING * allocated
    ]
    used = trial.device_used_bytes or 0
    how = "used" if trial.fits else "needed"
    total = f"{when}, {gib_of(used, gpu.total_bytes)} are {how}"
    return f"{total}; of what tensors hold, {listed(named)}." if named else f"{total}."


_NAMES = {
    "parameters": "weights are",
    "gradients": "gradients are",
    "optimizer_state": "the optimizer's state is",
    "activations": "activations are",
    "temporaries": "short-lived tensors are",
    "cache": "keys and values are",
    "casts": "casts of weights are",
}


def _context(found: GenerationAnswer, has_prompt: bool) -> str:
    batch = found.trial.batch_size
    if not found.longest_length:
        return f"At batch {batch:,}, not even the shortest texts fit."
    end = "all that the model takes" if found.longest_is_the_models else "more run out of memory"
    together = ", prompt and answer together" if has_prompt else ""
    sure, most = found.longest_that_surely_fits, found.longest_length
    if sure == most:
        return f"At batch {batch:,}, a text of {most:,} tokens surely fits{together}: {end}."
    surely = f"a text of {sure:,} tokens surely fits" if sure else "no text is certain to fit"
    return f"At batch {batch:,}, {surely}{together}; up to {most:,} may: {end}."


def _texts(count: int) -> str:
    return "text" if count == 1 else "texts"


def _named(trial: Trial) -> str:
    return trial.source.capitalize()
