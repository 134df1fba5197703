"""The question of one analysis: a workload, a GPU, the batch size used today, what time costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import InvalidInput
from engine.gpus import GPUS, LOCAL, Gpu, canonical_name
from engine.parsing import collect, positive_number, whole_number
from engine.presets import PRESETS
from engine.workload import Precision, Workload

LARGEST_BATCH_SIZE = 65_536
"""Upper bound of every batch size, so that no extrapolation runs away."""

_SMALLEST_MEMORY_LIMIT = 2**20
_LARGEST_MEMORY_LIMIT = 2**44


@dataclass(frozen=True)
class Assumptions:
    """What the user or the lab assumes about a year of training.

    Attributes:
        hours_per_run: GPU-hours one training run takes today, at the current batch size.
        runs_per_year: How many such runs there are in a year.
        price_per_hour_usd: Price of one GPU-hour; ``None`` takes the catalogue's.
    """

    hours_per_run: float = 8.0
    runs_per_year: float = 100.0
    price_per_hour_usd: float | None = None

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        for name, largest in (
            ("hours_per_run", 100_000.0),
            ("runs_per_year", 1_000_000.0),
            ("price_per_hour_usd", 10_000.0),
        ):
            value = getattr(self, name)
            if value is None and name == "price_per_hour_usd":
                continue
            object.__setattr__(self, name, positive_number(name, value, largest, wrong))
        if wrong:
            raise InvalidInput(wrong)


@dataclass(frozen=True)
class AnalysisRequest:
    """One question put to the engine.

    Attributes:
        gpu: A name of the catalogue, or ``local`` for the device of the machine that runs it.
        current_batch_size: The batch size used today.
        batch_multiple: Only multiples of it are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; needed on a machine with no GPU.
    """

    workload: Workload
    gpu: str
    current_batch_size: int = 16
    batch_multiple: int = 1
    memory_limit_bytes: int | None = None
    assumptions: Assumptions = Assumptions()

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        try:
            object.__setattr__(self, "gpu", canonical_name(self.gpu))
        except InvalidInput as error:
            wrong |= error.fields
        for name, largest in (
            ("current_batch_size", LARGEST_BATCH_SIZE),
            ("batch_multiple", 1024),
        ):
            number = whole_number(name, getattr(self, name), 1, largest, wrong)
            object.__setattr__(self, name, number)
        if self.memory_limit_bytes is not None:
            limit = whole_number(
                "memory_limit_bytes",
                self.memory_limit_bytes,
                _SMALLEST_MEMORY_LIMIT,
                _LARGEST_MEMORY_LIMIT,
                wrong,
            )
            object.__setattr__(self, "memory_limit_bytes", limit)
        if "gpu" not in wrong and self.gpu != LOCAL:
            self._check_number_format(GPUS[self.gpu], wrong)
        if wrong:
            raise InvalidInput(wrong)

    def _check_number_format(self, gpu: Gpu, wrong: dict[str, str]) -> None:
        precision = self.workload.precision
        if precision in (Precision.BF16_MIXED, Precision.BF16_TRUE) and gpu.bf16_flops is None:
            wrong["precision"] = f"{gpu.display_name} has no bf16; choose fp16-mixed or fp32"
        elif precision is Precision.TF32 and gpu.tf32_flops is None:
            wrong["precision"] = f"{gpu.display_name} has no TF32; choose fp16-mixed or fp32"

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> AnalysisRequest:
        """Build a request from untrusted, flat fields.

        Args:
            given: The fields of :class:`~engine.workload.Workload`, of :class:`Assumptions` and of
                this class, side by side, as a form, the API and the command line have them. Empty
                text and ``None`` mean "the default".

        Raises:
            InvalidInput: With a message for each wrong or unknown field of all three.
        """
        filled = {name: value for name, value in given.items() if value not in (None, "")}
        own = _OWN_FIELDS & filled.keys()
        assumed = _ASSUMED_FIELDS & filled.keys()
        trained = _WORKLOAD_FIELDS & filled.keys()
        known = _OWN_FIELDS | _ASSUMED_FIELDS | _WORKLOAD_FIELDS
        wrong = {
            name: f"unknown field; known are {', '.join(sorted(known))}"
            for name in filled.keys() - known
        }
        if "gpu" not in filled:
            wrong["gpu"] = f"name a GPU: {', '.join([*GPUS, LOCAL])}"
        workload = collect(lambda: Workload.parse({name: filled[name] for name in trained}), wrong)
        taken: dict[str, Any] = {name: filled[name] for name in assumed}
        assumptions = collect(lambda: Assumptions(**taken), wrong)
        # Stand-ins let the other fields be checked where some are wrong, so that a form shows every
        # mistake at once.
        fields_of_own: dict[str, Any] = {"gpu": LOCAL} | {name: filled[name] for name in own}
        request = collect(
            lambda: cls(
                workload=workload or Workload(next(iter(PRESETS))),
                assumptions=assumptions or Assumptions(),
                **fields_of_own,
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request

    def to_dict(self) -> dict[str, object]:
        """The flat fields that :meth:`parse` takes back."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        nested = {"workload", "assumptions"}
        flat = {name: value for name, value in own.items() if name not in nested}
        return flat | self.workload.to_dict() | asdict(self.assumptions)


_OWN_FIELDS = {"gpu", "current_batch_size", "batch_multiple", "memory_limit_bytes"}
_ASSUMED_FIELDS = {field.name for field in fields(Assumptions)}
_WORKLOAD_FIELDS = {field.name for field in fields(Workload)}
