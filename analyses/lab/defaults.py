"""What an analysis assumes that does not say its hours, runs or price: decided here, once.

The values are written into the stored request, so that an analysis stays as it is when the lab
changes its mind. Page, API and demo go through :func:`settle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from analyses.lab.selectors import lab_settings, price_of
from engine.request import AnalysisRequest, Assumptions

LAB = "lab"
PRICE = "price_per_hour_usd"


@dataclass(frozen=True)
class Settled:
    """A request that says all it assumes.

    Attributes:
        assumed_by: By name of an assumption, whose it is: ``lab`` or ``catalogue``. One that is not
            there is the asker's own.
    """

    request: AnalysisRequest
    assumed_by: dict[str, str]


def settle(
    request: AnalysisRequest, given: Mapping[str, object], measured_gpu: str = ""
) -> Settled:
    """Fill what was left out with what holds in the lab at this moment.

    Args:
        request: As the engine has read it.
        given: The flat fields it was read from; empty text and ``None`` are left out.
        measured_gpu: The kind of GPU that it is measured on; empty for a prediction.

    Returns:
        The request with its hours, runs and price. The price stays ``None`` where nobody knows one.
        A value that was given and is the lab's counts as the lab's: a form proposes it.
    """
    lab, price = lab_settings(), price_of(measured_gpu or request.gpu)
    held = asdict(Assumptions(lab.hours_per_run, lab.runs_per_year, price.usd))
    left_out = {name: value for name, value in held.items() if given.get(name) in (None, "")}
    assumed = replace(request.assumptions, **left_out)
    origins = {"hours_per_run": LAB, "runs_per_year": LAB, PRICE: price.origin}
    return Settled(
        request=replace(request, assumptions=assumed),
        assumed_by={
            name: origins[name]
            for name, value in asdict(assumed).items()
            if origins[name] and value == held[name]
        },
    )
