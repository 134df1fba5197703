"""MemoryMark's engine: how much memory, time and money a training step takes at each batch size.

Plain Python with no Django. The data classes (:mod:`engine.workload`, :mod:`engine.gpus`,
:mod:`engine.result`) import neither torch nor transformers, so a web process can use them.

:func:`analyze` is for your own training code, :func:`engine.analysis.analyze` for the models that
the engine knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import Event
    from .result import AnalysisResult

__all__ = ["__version__", "analyze"]

__version__ = "0.1.0"


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

    ``make_step(batch_size)`` creates model, optimizer and data, and returns a function without
    arguments that runs one whole training step. It must create everything itself, since each trial
    calls it in a fresh process. ``engine/examples/my_training.py`` is an example.

    Args:
        make_step: ``module:function``, or a function at the top level of a module. In a script,
            call :func:`analyze` under ``if __name__ == "__main__":``.
        gpu: ``local`` measures on this machine's device; a catalogue GPU (``memorymark
            devices``) is predicted, if the code can be traced without running it.
        current_batch_size: The batch size used today.
        batch_multiple: Only multiples of this are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; required on a machine without a GPU.
        gradient_accumulation: Micro-batches per step today. If more than one, it is passed to the
            factory, which needs an argument with this name.
        global_batch_size: Samples per optimizer step to keep by accumulating micro-batches; the
            factory needs the argument above.
        allocator: Options of the caching allocator, as in ``PYTORCH_ALLOC_CONF``.
        hours_per_run: GPU-hours per training run today; 8 if not set.
        runs_per_year: Number of such runs; 100 if not set.
        price_per_hour_usd: Per GPU; the catalogue price if not set.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: With a message for each wrong argument.
        ScriptFailed: If the code raised an error, or did not return a step.
        CannotTrace: If it cannot be predicted.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a trial failed for a reason other than memory.
    """
    # These load torch, which users of the data classes do not need.
    from .analysis import analyze_script
    from .script.factory import Factory
    from .script.request import ScriptRequest

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
    return analyze_script(ScriptRequest.parse(Factory.of(make_step), given), emit)
