"""The plan as plain data: a workload on every GPU, the ladder, and the room that is left."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from ..interface.assumptions import Assumptions
from ..interface.result import GlobalBatch, GpuOffer
from ..interface.workload import Workload
from .ladder import Rung


@dataclass(frozen=True)
class GpuOption:
    """A workload on one catalogue GPU. All numbers are predicted, prices are assumed.

    Attributes:
        gpu: Its name in the catalogue.
        gpu_name: Its display name.
        price_per_hour_usd: Price of one GPU; ``None`` where it is unknown, and then so is the cost.
        fits: Whether the smallest batch fits.
        is_sure: Whether the recommended batch fits even at the high end of its prediction; ``None``
            if an older version compared them.
        why_not: Reason why it does not, or why the GPU cannot run the workload at all; else empty.
        largest_batch_size: The largest batch that fits, per GPU.
        recommended_batch_size: The batch to train with there.
        gradient_accumulation: Micro-batches of that size to one optimizer step.
        samples_per_second: At the recommended batch, on all GPUs that share the work.
        samples_per_second_low, samples_per_second_high: Its interval.
        usd_per_million_samples: At that speed, for all those GPUs.
        hours_per_run: GPU-hours of a run there: the assumed hours, which are those on the current
            GPU at the current batch, times the speed here over the speed there. ``None`` if no
            current GPU is set or the current batch does not fit on it.
        speed_is_a_guess: Whether no kernel of its vendor was measured, so that it is not compared
            with others.
    """

    gpu: str
    gpu_name: str
    total_bytes: int
    price_per_hour_usd: float | None
    fits: bool
    why_not: str = ""
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    gradient_accumulation: int | None = None
    samples_per_second: float | None = None
    samples_per_second_low: float | None = None
    samples_per_second_high: float | None = None
    usd_per_million_samples: float | None = None
    hours_per_run: float | None = None
    usd_per_run: float | None = None
    speed_is_a_guess: bool = False
    is_sure: bool | None = None


@dataclass(frozen=True)
class Room:
    """Ways to use the memory that the current batch leaves free, or to save with it.

    All of it surely fits: at the high end of its prediction.

    Attributes:
        batch_size: The current batch, at which all of this holds.
        free_bytes: Free memory of the GPU, at that batch.
        sequence_length: The longest that fits; ``None`` if none longer than today's does, or there
            is no sequence.
        model: The largest preset of the same family that fits; ``None`` if no larger one does.
        model_name: Its display name.
        gpu: The cheapest GPU with at least 95% of this one's speed, each at its own recommended
            batch; ``None`` if none is cheaper.
        gpu_name: Its display name.
        gpu_price_per_hour_usd: Price of one such GPU.
        runs: Number of such runs that fit in this GPU's memory. It does not share its speed:
            together they are hardly faster than one after the other.
    """

    batch_size: int
    free_bytes: int
    sequence_length: int | None = None
    model: str | None = None
    model_name: str = ""
    gpu: str | None = None
    gpu_name: str = ""
    gpu_price_per_hour_usd: float | None = None
    runs: int = 1


@dataclass(frozen=True)
class Plan:
    """A workload on every GPU, and the ladder on the current one.

    Attributes:
        model_name: Display name of the model or script.
        workload: The settings of its training; ``None`` for a script, whose code has them.
        current_gpu: The GPU used today, by its catalogue name; ``None`` if none is set.
        current_batch_size: The batch size used today. If there is none yet: the recommended one on
            the current GPU, from which the ladder's moves are compared; ``None`` without a GPU.
        assumptions: Hours of a run on the current GPU at the current batch, and runs per year.
        options: Every GPU of the catalogue, in its order.
        cheapest: The GPU at the lowest price per hour; ``None`` if none fits that has a price. This
            and the next two are of the GPUs that surely fit, if any does, without those whose speed
            is a guess.
        best_value: The GPU with the lowest cost per million samples.
        fastest: The GPU with the most samples per second.
        ladder: The best combinations of moves on the current GPU, in order; empty if none is set.
        room: Uses of the memory left free on the current GPU; ``None`` if there are none.
        global_batch: Split that keeps the global batch on the current GPU; ``None`` without one.
        software: As in :class:`~engine.interface.result.AnalysisResult`.
    """

    model_name: str
    workload: Workload | None
    current_gpu: str | None
    current_batch_size: int | None
    assumptions: Assumptions
    options: list[GpuOption]
    cheapest: str | None
    best_value: str | None
    fastest: str | None
    ladder: list[Rung]
    room: Room | None
    global_batch: GlobalBatch | None
    caveats: list[str]
    software: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @property
    def offers(self) -> list[GpuOffer]:
        """The options that an analysis keeps: not those whose speed is a guess."""
        names = [field.name for field in fields(GpuOffer) if field.name != "is_sure"]
        return [
            GpuOffer(
                **{name: getattr(option, name) for name in names}, is_sure=bool(option.is_sure)
            )
            for option in self.options
            if not option.speed_is_a_guess
        ]
