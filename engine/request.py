"""The question of one analysis: a workload, a GPU, the batch size used today, what time costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, Protocol

from engine.allocator.options import AllocatorOptions
from engine.errors import InvalidInput
from engine.gpus import GPUS, LOCAL, Gpu, canonical_name
from engine.models.presets import PRESETS
from engine.parsing import bytes_of, collect, positive_number, unknown_fields, whole_number
from engine.workload import Attention, Precision, Workload

LARGEST_BATCH_SIZE = 65_536
"""Upper bound of every batch size, so that no extrapolation runs away."""

LARGEST_ACCUMULATION = 1024
_LARGEST_GLOBAL_BATCH_SIZE = LARGEST_BATCH_SIZE * LARGEST_ACCUMULATION

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


class Question(Protocol):
    """What every question has in common, whatever is trained."""

    @property
    def gpu(self) -> str:
        """A name of the catalogue, or ``local`` for the device of the machine that runs it."""

    @property
    def current_batch_size(self) -> int:
        """The batch size used today."""

    @property
    def batch_multiple(self) -> int:
        """Only multiples of it are tried and recommended."""

    @property
    def memory_limit_bytes(self) -> int | None:
        """Emulates a smaller GPU; needed on a machine with no GPU."""

    @property
    def assumptions(self) -> Assumptions:
        """What the user assumes about a year of training."""

    @property
    def global_batch_size(self) -> int | None:
        """Samples per optimizer step to keep, over micro-batches and GPUs; ``None`` keeps none."""

    @property
    def allocator(self) -> str:
        """Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them."""

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches to one optimizer step today."""

    @property
    def world_size(self) -> int:
        """GPUs that share a step."""

    def accumulation_at(self, batch_size: int) -> int:
        """Micro-batches of a size to one optimizer step."""


class KeepsGlobalBatch:
    """The part of a question that answers for its global batch."""

    def accumulation_at(self: Question, batch_size: int) -> int:
        """Micro-batches of a size to one optimizer step: as many as keep the global batch.

        Rounded up where they do not divide it evenly; those of today without a global batch.
        """
        if self.global_batch_size is None:
            return self.gradient_accumulation
        return -(-self.global_batch_size // (batch_size * self.world_size))


def settle_gpu_and_sizes(question: Question, wrong: dict[str, str]) -> None:
    """Check the GPU and the sizes of a question under construction, and put them right.

    Args:
        question: A data class whose values are still untrusted.
        wrong: Receives a message for each wrong field.
    """
    try:
        object.__setattr__(question, "gpu", canonical_name(question.gpu))
    except InvalidInput as error:
        wrong |= error.fields
    for name, smallest, largest in (
        ("current_batch_size", 1, LARGEST_BATCH_SIZE),
        ("batch_multiple", 1, 1024),
        ("memory_limit_bytes", _SMALLEST_MEMORY_LIMIT, _LARGEST_MEMORY_LIMIT),
    ):
        value = getattr(question, name)
        if isinstance(value, str) and name == "memory_limit_bytes":
            value = collect(partial(bytes_of, value), wrong)
        if name not in wrong and (value is not None or name != "memory_limit_bytes"):
            number = whole_number(name, value, smallest, largest, wrong)
            object.__setattr__(question, name, number)
    collect(lambda: AllocatorOptions.parse(question.allocator), wrong)
    if question.global_batch_size is not None:
        size = whole_number(
            "global_batch_size", question.global_batch_size, 1, _LARGEST_GLOBAL_BATCH_SIZE, wrong
        )
        object.__setattr__(question, "global_batch_size", size)
        if size is not None and not wrong:
            _check_global_batch(question, size, wrong)


def _check_global_batch(question: Question, size: int, wrong: dict[str, str]) -> None:
    """Whether today's micro-batches make up the global batch."""
    current, accumulated = question.current_batch_size, question.gradient_accumulation
    gpus = question.world_size
    today = current * accumulated * gpus
    if accumulated > 1 and size != today:
        wrong["global_batch_size"] = (
            f"{accumulated} micro-batches of {current:,} on {gpus} GPU(s) make {today:,}, not "
            f"{size:,}; give that, or leave gradient_accumulation out"
        )
    elif size % today:
        wrong["global_batch_size"] = (
            f"{size:,} is no multiple of the {today:,} samples of a micro-batch of {current:,} on "
            f"{gpus} GPU(s); correct it or current_batch_size"
        )


@dataclass(frozen=True)
class AnalysisRequest(KeepsGlobalBatch):
    """One question put to the engine.

    Attributes:
        gpu: A name of the catalogue, or ``local`` for the device of the machine that runs it.
        current_batch_size: The batch size used today.
        batch_multiple: Only multiples of it are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; needed on a machine with no GPU.
        global_batch_size: Samples per optimizer step over all micro-batches and GPUs, to be kept:
            batch size, gradient accumulation and world size multiplied. Where the workload does not
            accumulate, its accumulation today follows from this. ``None`` keeps none.
        allocator: Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them; empty for
            PyTorch's default.
    """

    workload: Workload
    gpu: str
    current_batch_size: int = 16
    batch_multiple: int = 1
    memory_limit_bytes: int | None = None
    assumptions: Assumptions = Assumptions()
    global_batch_size: int | None = None
    allocator: str = ""

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle_gpu_and_sizes(self, wrong)
        if self.gpu != LOCAL and "gpu" not in wrong:
            self._check_gpu(GPUS[self.gpu], wrong)
        if wrong:
            raise InvalidInput(wrong)

    def _check_gpu(self, gpu: Gpu, wrong: dict[str, str]) -> None:
        """Refuse what a GPU of the catalogue cannot do, or what cannot be predicted."""
        precision = self.workload.precision
        if precision in (Precision.BF16_MIXED, Precision.BF16_TRUE) and gpu.bf16_flops is None:
            wrong["precision"] = f"{gpu.display_name} has no bf16; choose fp16-mixed or fp32"
        elif precision is Precision.TF32 and gpu.tf32_flops is None:
            wrong["precision"] = f"{gpu.display_name} has no TF32; choose fp16-mixed or fp32"
        if self.workload.attention is Attention.FLASH and gpu.compute_capability < 8.0:
            wrong["attention"] = f"{gpu.display_name} cannot run FlashAttention; choose sdpa"
        if self.workload.compile:
            wrong["compile"] = (
                "what a compiler does with a step is not predicted; measure it (gpu local), or "
                "leave it off for the memory of the step as it is written"
            )

    @property
    def gradient_accumulation(self) -> int:
        """The workload's."""
        return self.workload.gradient_accumulation

    @property
    def world_size(self) -> int:
        """The workload's."""
        return self.workload.world_size

    def workload_at(self, batch_size: int) -> Workload:
        """The workload with the accumulation of a micro-batch of that size."""
        accumulated = min(self.accumulation_at(batch_size), LARGEST_ACCUMULATION)
        if accumulated == self.workload.gradient_accumulation:
            return self.workload
        return replace(self.workload, gradient_accumulation=accumulated)

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
        wrong = unknown_fields(filled, known)
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


_OWN_FIELDS = {
    field.name for field in fields(AnalysisRequest) if field.name not in ("workload", "assumptions")
}
_ASSUMED_FIELDS = {field.name for field in fields(Assumptions)}
_WORKLOAD_FIELDS = {field.name for field in fields(Workload)}
