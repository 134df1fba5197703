"""The request for one analysis of a script.

Kept apart from :class:`~engine.request.AnalysisRequest` on purpose: that one also comes in over the
web, and must never name code to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import software
from ..border import read
from ..errors import InvalidInput
from ..fields import described_fields
from ..gpus import LOCAL
from ..parsing import collect
from ..request import FIELDS, Assumptions, Request
from ..workload import LARGEST_ACCUMULATION
from .factory import Factory


@dataclass(frozen=True)
class ScriptRequest(Request):
    """One request about a script; ``factory`` creates its training steps.

    To keep a global batch, the factory has to accept the number of micro-batches. ``software`` is
    that of :class:`~engine.workload.Workload`.
    """

    factory: Factory
    gpu: str = field(default=LOCAL, kw_only=True)
    software: str = field(default="", kw_only=True)

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches per step of the factory today."""
        return self.factory.gradient_accumulation

    @property
    def world_size(self) -> int:
        """One: a factory's steps run on one GPU."""
        return 1

    def factory_at(self, batch_size: int) -> Factory:
        """The factory, accumulating as many micro-batches of that size as the request needs."""
        accumulated = min(self.accumulation_at(batch_size), LARGEST_ACCUMULATION)
        return replace(self.factory, gradient_accumulation=accumulated)

    @classmethod
    def parse(cls, factory: Factory, given: Mapping[str, object]) -> ScriptRequest:
        """Build a request from untrusted fields, including those of :class:`Assumptions`.

        Args:
            factory: Creates the steps.
            given: Values by field name, ``gradient_accumulation`` and ``software``
                included. Empty text and ``None``
                mean the default.

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        filled: dict[str, Any] = {n: value for n, value in given.items() if value not in (None, "")}
        accumulation = filled.pop("gradient_accumulation", 1)
        pins = str(filled.pop("software", ""))
        assumed = described_fields(Assumptions).keys() & filled.keys()
        requested = described_fields(Request).keys() & filled.keys()
        message = "the factory's code decides this; leave it out"
        wrong = dict.fromkeys(filled.keys() - requested - assumed, message)
        assumptions = collect(
            lambda: Assumptions(**{name: filled[name] for name in assumed}), wrong
        )
        accumulated = read(FIELDS["gradient_accumulation"], accumulation, wrong)
        versions = collect(lambda: software.parse(pins), wrong) or {}
        request = collect(
            lambda: cls(
                replace(factory, gradient_accumulation=accumulated or 1),
                assumptions=assumptions or Assumptions(),
                software=software.as_text(versions),
                **{name: filled[name] for name in requested},
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request
