"""MemoryMark's engine: how much memory, time and money a training step takes at each batch size.

Plain Python with no Django. The data classes (:mod:`engine.workload`, :mod:`engine.gpus`,
:mod:`engine.result`) import neither torch nor transformers, so a web process can use them.

:func:`analyze` is for a person's own training code; :func:`engine.analysis.analyze` answers for the
models that the engine knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.events import Event
    from engine.result import AnalysisResult

__all__ = ["analyze"]


def analyze(
    make_step: str | Callable[[int], Callable[[], object]],
    *,
    gpu: str = "local",
    current_batch_size: int = 16,
    batch_multiple: int = 1,
    memory_limit_bytes: int | None = None,
    gradient_accumulation: int = 1,
    global_batch_size: int | None = None,
    allocator: str = "",
    hours_per_run: float | None = None,
    runs_per_year: float | None = None,
    price_per_hour_usd: float | None = None,
    emit: Callable[[Event], None] = lambda event: None,
) -> AnalysisResult:
    """Find the largest and the recommended batch of your own PyTorch training.

    ``make_step(batch_size)`` makes model, optimizer and data, and returns a function without
    arguments; each call of that runs one whole training step. ``engine/examples/my_training.py``
    shows one. Everything has to be made inside it: each trial calls it in a fresh process.

    Args:
        make_step: The factory as ``module:function``, or a function at the top level of a module.
            Called from a script, put the call under ``if __name__ == "__main__":``.
        gpu: ``local`` measures on this machine's device; a GPU of the catalogue (``python -m engine
            devices``) is predicted, if the code can be traced without running it.
        current_batch_size: The batch size used today.
        batch_multiple: Only multiples of it are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; needed on a machine with no GPU.
        gradient_accumulation: Micro-batches to a step today. More than one is given to the
            factory, which needs an argument of this name for it.
        global_batch_size: Samples per optimizer step to keep, by accumulating as many micro-batches
            as that takes; the factory needs the argument above.
        allocator: Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them.
        hours_per_run: GPU-hours of one training run today; 8 is assumed.
        runs_per_year: How many such runs there are; 100 is assumed.
        price_per_hour_usd: Of one GPU-hour; the catalogue's is assumed.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: With a message for each wrong argument.
        OwnCodeFailed: If the code raised an error, or returns no step.
        CannotTrace: If it cannot be predicted.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a trial ended for another reason than memory.
    """
    # These load torch, which whoever imports the package for its data classes does not want.
    from engine.own.analysis import analyze_own_code
    from engine.own.factory import Factory
    from engine.own.request import OwnCodeRequest

    given = {
        "gpu": gpu,
        "current_batch_size": current_batch_size,
        "batch_multiple": batch_multiple,
        "memory_limit_bytes": memory_limit_bytes,
        "gradient_accumulation": gradient_accumulation,
        "global_batch_size": global_batch_size,
        "allocator": allocator,
        "hours_per_run": hours_per_run,
        "runs_per_year": runs_per_year,
        "price_per_hour_usd": price_per_hour_usd,
    }
    return analyze_own_code(OwnCodeRequest.parse(Factory.of(make_step), given), emit)
