"""One workload or script on every catalogue GPU, each at its own recommended batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...answer.economics import usd_per_million_samples
from ...answer.plan import GpuOption, Plan
from ...answer.recommendation import kept_global_batch
from ...core.errors import InvalidInput
from ...core.sizes import gib
from ...gpus import GPUS, Gpu
from ...gpus.known import known_gpus
from ...interface.request import Request
from ...interface.trial import Trial
from ..limits import Limits, find_limits
from ..prediction import Prediction
from ..timing.intervals import memory_range


def gpu_today(request: Request) -> Gpu | None:
    """The GPU used today; ``None`` for ``local`` and ``any``, which are not in the catalogue.

    Raises:
        InvalidInput: If a price is set without a GPU.
    """
    if request.gpu in GPUS:
        return known_gpus(request.launch_microseconds)[request.gpu]
    if request.assumptions.price_per_hour_usd is not None:
        raise InvalidInput({"price_per_hour_usd": "choose the GPU that has this price"})
    return None


def speed_today(here: Prediction | InvalidInput) -> float | None:
    """Samples per second at the current batch on a GPU; ``None`` if it does not run there.

    Raises:
        NeedsTwoSamples: If no step runs at that batch.
    """
    if isinstance(here, InvalidInput):
        return None
    batch_size = here.request.known_batch_size
    here.traces.at(batch_size).check_runnable()
    return here.predict(batch_size).samples_per_second


def compared(
    name: str,
    request: Request,
    here: Gpu | None,
    options: list[GpuOption],
    speed_today: float | None,
) -> Plan:
    """The plan from what was found on every GPU, still without a ladder.

    Args:
        name: Display name of the model or script.
        request: The current batch, the assumptions and the global batch.
        here: The GPU used today.
        options: Every GPU of the catalogue, in its order.
        speed_today: Samples per second at the current batch on the current GPU; ``None`` if there
            is none, or it does not fit there.
    """
    fitting = [option for option in options if option.fits]
    own = next((one for one in fitting if here is not None and one.gpu == here.name), None)
    compared = best_known(options)
    return Plan(
        model_name=name,
        workload=None,
        current_gpu=None if here is None else here.name,
        current_batch_size=request.current_batch_size,
        assumptions=request.assumptions,
        options=options,
        cheapest=_lowest(compared, lambda option: option.price_per_hour_usd),
        best_value=_lowest(compared, lambda option: option.usd_per_million_samples),
        fastest=_lowest(compared, lambda option: -(option.samples_per_second or 0.0)),
        ladder=[],
        room=None,
        global_batch=(
            kept_global_batch(request, own.recommended_batch_size)
            if own is not None and own.recommended_batch_size is not None
            else None
        ),
        caveats=_caveats(request, here, speed_today),
        software={},
    )


def best_known(options: Sequence[GpuOption]) -> list[GpuOption]:
    """The GPUs to name the best of: of known speed, and those that surely fit if any does."""
    known = [option for option in options if option.fits and not option.speed_is_a_guess]
    return [option for option in known if option.is_sure] or known


def gpu_option(
    request: Request,
    here: Gpu | None,
    gpu: Gpu,
    there: Prediction | InvalidInput,
    speed_today: float | None,
) -> GpuOption:
    """The prediction for one GPU.

    Args:
        request: The assumptions.
        here: The GPU used today, whose price may be assumed.
        gpu: The GPU.
        there: Predictions on it, or why it cannot run there.
        speed_today: As in :func:`compared`.
    """
    own = request.assumptions.price_per_hour_usd if gpu == here else None
    price = gpu.price_per_hour_usd if own is None else own
    option = GpuOption(
        gpu.name,
        gpu.display_name,
        gpu.total_bytes,
        price,
        fits=False,
        speed_is_a_guess=not gpu.rates_known,
    )
    if isinstance(there, InvalidInput):
        return replace(option, why_not="; ".join(there.fields.values()))
    limits = find_limits(there)
    if limits.choice is None:
        smallest = there.fit(limits.batch_multiple)
        needed = gib(smallest.device_used_bytes or 0, 1)
        return replace(option, why_not=f"batch {smallest.batch_size:,} needs {needed}")
    batch_size = limits.choice.batch_size
    if batch_size == request.current_batch_size:
        there.traces.at(batch_size).check_runnable()
    return _with_speed(option, there.request, limits, there.predict(batch_size), speed_today)


def _with_speed(
    option: GpuOption,
    request: Request,
    limits: Limits,
    recommended: Trial,
    speed_today: float | None,
) -> GpuOption:
    speed, seconds = recommended.samples_per_second, recommended.step_seconds
    shortest, longest = recommended.step_seconds_low, recommended.step_seconds_high
    if not (speed and seconds and shortest and longest):
        raise ValueError(f"batch {recommended.batch_size} is recommended and has no speed")
    price = option.price_per_hour_usd
    hours = request.assumptions.hours_per_run * speed_today / speed if speed_today else None
    return replace(
        option,
        fits=True,
        is_sure=limits.safe_batch_size >= recommended.batch_size,
        largest_batch_size=limits.outcome.largest_batch_size,
        recommended_batch_size=recommended.batch_size,
        gradient_accumulation=request.accumulation_at(recommended.batch_size),
        samples_per_second=speed,
        samples_per_second_low=speed * seconds / longest,
        samples_per_second_high=speed * seconds / shortest,
        usd_per_million_samples=(
            None if price is None else usd_per_million_samples(price * request.world_size, speed)
        ),
        hours_per_run=hours,
        usd_per_run=None if hours is None or price is None else hours * price,
    )


def _lowest(options: Sequence[GpuOption], value: Callable[[GpuOption], float | None]) -> str | None:
    """The GPU with the lowest known value; ``None`` if none is known."""
    known = [(size, option.gpu) for option in options if (size := value(option)) is not None]
    return min(known, key=lambda one: one[0])[1] if known else None


def _caveats(request: Request, here: Gpu | None, speed_today: float | None) -> list[str]:
    caveats = [
        f"Nothing was run. Memory ({memory_range()}) and step times are predicted, and prices are "
        "assumed. Ratios between GPUs are more reliable.",
    ]
    if here is not None and speed_today is None:
        caveats.append(
            f"Batch {request.known_batch_size:,} does not fit on {here.display_name}, so the "
            "cost of a run on other GPUs is not known."
        )
    if request.memory_limit_bytes is not None:
        caveats.append("The memory limit is ignored: every GPU is assumed to be used whole.")
    return caveats
