"""Memory by length: each length of a batch of texts, beside the GPU's memory."""

from __future__ import annotations

from collections.abc import Collection

from analyses.charts.breakdown import used_bytes
from analyses.charts.picture import Drawn, Fit, Picture, Point, draw, fit_of, point_of
from engine.answer.superlatives import LONGEST, of_those
from engine.core.numbers import whole
from engine.core.sizes import gib
from engine.interface.texts import LengthTrial, TextResult
from engine.interface.trial import GpuFacts, Trial


def picture_of_lengths(
    result: TextResult, lengths: list[LengthTrial], gpu: GpuFacts, asked: int | None
) -> Picture | None:
    """The picture of a result; ``None`` where the memory of no length is known.

    Args:
        result: About texts.
        lengths: The lengths with their trials, growing.
        gpu: The GPU's name.
        asked: The length of the request, if it has one.
    """
    known = [one for one in lengths if used_bytes(one.trial) is not None]
    if not known:
        return None
    of_trial = {id(one.trial): one.length for one in known}

    def text(trial: Trial, categories: Collection[str]) -> Point:
        return point_of(trial, of_trial[id(trial)], gpu.total_bytes, categories)

    most = result.longest_tokens
    fits = {fit_of(one.trial, gpu.total_bytes) for one in known if one.length == most}
    longest = of_those(LONGEST, is_sure=fits == {Fit.FITS})
    names: dict[int, list[str]] = {}
    for name, length in (("requested", asked), (longest, most)):
        if length:
            names.setdefault(length, []).append(name)
    shown = [one.length for one in known]
    return draw(
        Drawn(
            title="Memory by length",
            name="Length",
            label="Length in tokens",
            unit="tokens",
            description=(
                f"Memory by length in tokens for {result.model_name} on {gpu.name}, which has "
                f"{gib(gpu.total_bytes)}. A length of {whole(most)} is the {longest}."
            ),
        ),
        [(one.length, one.trial) for one in known],
        names,
        most if most in shown else shown[0],
        gpu.total_bytes,
        text,
    )
