"""The question of one analysis of a person's own code.

Apart from :class:`~engine.request.AnalysisRequest` on purpose: that one comes in over the web too,
and must never name code to be run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from engine.errors import InvalidInput
from engine.gpus import LOCAL
from engine.own.factory import Factory
from engine.parsing import collect, whole_number
from engine.request import (
    LARGEST_ACCUMULATION,
    Assumptions,
    KeepsGlobalBatch,
    settle_gpu_and_sizes,
)


@dataclass(frozen=True)
class OwnCodeRequest(KeepsGlobalBatch):
    """One question about a person's own training code.

    Attributes:
        factory: Makes their training steps.
        gpu: ``local`` measures on this machine's device; a name of the catalogue predicts.
        current_batch_size: The batch size used today.
        batch_multiple: Only multiples of it are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; needed on a machine with no GPU.
        assumptions: What a year of training is assumed to be.
        global_batch_size: Samples per optimizer step to be kept, by accumulating micro-batches:
            the factory has to take their number. ``None`` keeps none.
        allocator: Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them.
    """

    factory: Factory
    gpu: str = LOCAL
    current_batch_size: int = 16
    batch_multiple: int = 1
    memory_limit_bytes: int | None = None
    assumptions: Assumptions = field(default_factory=Assumptions)
    global_batch_size: int | None = None
    allocator: str = ""

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle_gpu_and_sizes(self, wrong)
        if wrong:
            raise InvalidInput(wrong)

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches to a step of the factory as it is used today."""
        return self.factory.gradient_accumulation

    @property
    def world_size(self) -> int:
        """One: a factory's steps run on one GPU."""
        return 1

    def factory_at(self, batch_size: int) -> Factory:
        """The factory with the accumulation of a micro-batch of that size."""
        accumulated = min(self.accumulation_at(batch_size), LARGEST_ACCUMULATION)
        return replace(self.factory, gradient_accumulation=accumulated)

    @classmethod
    def parse(cls, factory: Factory, given: Mapping[str, object]) -> OwnCodeRequest:
        """Build a request from untrusted fields, those of :class:`Assumptions` beside the others.

        Args:
            factory: Makes the steps.
            given: Field names to values, ``gradient_accumulation`` among them; empty text and
                ``None`` mean "the default".

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        filled: dict[str, Any] = {n: value for n, value in given.items() if value not in (None, "")}
        accumulation = filled.pop("gradient_accumulation", 1)
        own = {known.name for known in fields(cls)} - {"factory", "assumptions"}
        assumed = {known.name for known in fields(Assumptions)}
        message = "the code of a factory says this itself; leave it out"
        wrong = dict.fromkeys(filled.keys() - own - assumed, message)
        assumptions = collect(
            lambda: Assumptions(**{name: filled[name] for name in filled.keys() & assumed}), wrong
        )
        accumulated = whole_number(
            "gradient_accumulation", accumulation, 1, LARGEST_ACCUMULATION, wrong
        )
        request = collect(
            lambda: cls(
                replace(factory, gradient_accumulation=accumulated or 1),
                assumptions=assumptions or Assumptions(),
                **{name: filled[name] for name in filled.keys() & own},
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request
