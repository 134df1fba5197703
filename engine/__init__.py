"""MemoryMark's engine: how much memory, time and money a training step takes at each batch size.

Plain Python with no Django. The data classes (:mod:`engine.interface.workload`, :mod:`engine.gpus`,
:mod:`engine.interface.result`) import neither torch nor transformers, so a web process can use
them.

:func:`predict` and :func:`analyze` are for your own training, :func:`engine.analysis.analyze` for
the models that the engine knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .core.errors import InvalidInput, needing_the_engine

if TYPE_CHECKING:
    from .events import Emit
    from .interface.batch_trials import BatchTrials
    from .interface.result import AnalysisResult
    from .script.factory import Factory
    from .script.live import Live
    from .script.request import ScriptRequest

__all__ = ["__version__", "analyze", "predict"]

__version__ = "1.0.0"


def predict(
    training: object,
    loader: object = None,
    *,
    gpu: str,
    batch_sizes: Sequence[int] = (),
    trainer_options: Mapping[str, Any] | None = None,
    memory_limit_bytes: int | None = None,
    allocator: str = "",
    launch_microseconds: float | None = None,
    recorded: str | Path | None = None,
    emit: Emit = lambda event: None,
) -> BatchTrials:
    """Predict the memory and time of training that is set up in this process; nothing is run.

    It is traced on fake tensors in a fork of this process, where nothing changes.

    Args:
        training: A ``Trainer`` of transformers or trl; a Lightning module; or any function that
            takes a batch size and runs one training step with data of that size, or returns a
            function that does. Also ``module:function``, as for :func:`analyze`.
        loader: The ``DataLoader`` of a Lightning module.
        gpu: A catalogue GPU (``memorymark devices``).
        batch_sizes: Batch sizes to predict, such as ``[16, 32]``; by default that of the Trainer's
            arguments or of the loader.
        trainer_options: For a Lightning module, the arguments of the ``Trainer`` that will train
            it, such as ``{"precision": "bf16-mixed"}``; on one GPU, and without its logger and
            checkpoints.
        memory_limit_bytes: Emulates a smaller GPU.
        allocator: Options of the caching allocator, as in ``PYTORCH_ALLOC_CONF``.
        launch_microseconds: Time that one core of the machine takes to launch an operation;
            measured by ``memorymark selfcheck`` there, and 15 to 60 µs where nothing is known.
        recorded: Instead, a file of training runs like this one on that GPU, as
            ``memorymark.recording`` writes it, whose steps give the launch time.
        emit: Receives log lines as they come.

    Returns:
        A trial for each batch size; ``print`` shows them.

    Raises:
        InvalidInput: With a message for each wrong argument.
        ScriptFailed: If the training raised an error, or ended before three steps.
        CannotTrace: If it cannot be predicted.
    """
    with needing_the_engine():
        from .versions.releases import check_releases

        check_releases()
        from .records.reading import recorded_for
        from .script.factory import Factory
        from .script.live import Live
        from .script_analysis import predict_script

    given: dict[str, object] = {
        "gpu": gpu,
        "memory_limit_bytes": memory_limit_bytes,
        "allocator": allocator,
        "launch_microseconds": launch_microseconds,
    }
    script: Factory | Live
    if isinstance(training, str) and loader is None and trainer_options is None:
        script, own = Factory.of(training), None
    else:
        script = Live.of(training, loader, trainer_options)
        own = script.batch_size
    given["gradient_accumulation"] = script.gradient_accumulation
    with _batch_sizes_named():
        sizes = _listed(batch_sizes) or ([] if own is None else [own])
        if not sizes:
            raise InvalidInput({"batch_sizes": "say which to predict, such as [16, 32]"})
        requests = [_request(script, given, size) for size in sizes]  # refuses each wrong size
        file = recorded_for(requests[0], recorded)
        return predict_script(requests[0], emit, [one.known_batch_size for one in requests], file)


def _listed(batch_sizes: object) -> list[Any]:
    if isinstance(batch_sizes, str) or not isinstance(batch_sizes, Iterable):
        raise InvalidInput({"batch_sizes": f"enter a list, such as [{batch_sizes}]"})
    return list(batch_sizes)


@contextmanager
def _batch_sizes_named() -> Iterator[None]:
    """Let errors about the batch size of a request name the argument that it comes from."""
    try:
        yield
    except InvalidInput as error:
        if "current_batch_size" not in error.fields:
            raise
        named = {"current_batch_size": "batch_sizes"}
        fields = {named.get(field, field): message for field, message in error.fields.items()}
        raise InvalidInput(fields) from error


def analyze(
    training: object,
    loader: object = None,
    *,
    gpu: str = "local",
    current_batch_size: int | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    batch_multiple: int = 1,
    memory_limit_bytes: int | None = None,
    gradient_accumulation: int = 1,
    global_batch_size: int | None = None,
    allocator: str = "",
    launch_microseconds: float | None = None,
    recorded: str | Path | None = None,
    hours_per_run: float | None = None,
    runs_per_year: float | None = None,
    price_per_hour_usd: float | None = None,
    emit: Emit = lambda event: None,
) -> AnalysisResult:
    """Find the largest and the recommended batch of your own PyTorch training.

    What is set up in this process is predicted as it is, as by :func:`predict`: a Trainer, a
    Lightning module, a lambda, method or inner function.

    A function of a module is different here: a *factory* ``make_step(batch_size)``, which creates
    model, optimizer and data, and returns a function without arguments that runs one whole training
    step. It is imported by its name in a fresh process for each trial, so that it can be measured,
    and has to create everything itself. ``engine/examples/my_training.py`` is an example.

    Args:
        training: ``module:function``, or a function at the top level of a module. In a script, call
            :func:`analyze` under ``if __name__ == "__main__":``. Or what :func:`predict` takes.
        loader: The ``DataLoader`` of a Lightning module.
        gpu: ``local`` measures on this machine's device; a catalogue GPU (``memorymark devices``)
            is predicted, if the code can be traced without running it, and ``any`` is the one of
            them that trains it at the lowest cost.
        current_batch_size: The batch size used today; by default that of the Trainer's arguments or
            of the loader, and 16 for a function.
        trainer_options: As for :func:`predict`.
        batch_multiple: Only multiples of this are tried and recommended.
        memory_limit_bytes: Emulates a smaller GPU; required on a machine without a GPU.
        gradient_accumulation: Micro-batches per step today; those of a Trainer or of Lightning's
            options are known. If more than one, it is passed to the factory, which needs an
            argument with this name.
        global_batch_size: Samples per optimizer step to keep by accumulating micro-batches; the
            factory needs the argument above.
        allocator: Options of the caching allocator, as in ``PYTORCH_ALLOC_CONF``.
        launch_microseconds: Time that one core of the machine takes to launch an operation;
            measured by ``memorymark selfcheck`` there, and 15 to 60 µs where nothing is known.
        recorded: Instead, a file of training runs like this one on that GPU, as
            ``memorymark.recording`` writes it, whose steps give the launch time.
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
    with needing_the_engine():
        from .versions.releases import check_releases

        check_releases()
        from .records.reading import recorded_for
        from .script.live import Live
        from .script_analysis import analyze_script

    given: dict[str, object] = {
        "gpu": gpu,
        "batch_multiple": batch_multiple,
        "memory_limit_bytes": memory_limit_bytes,
        "gradient_accumulation": gradient_accumulation,
        "global_batch_size": global_batch_size,
        "allocator": allocator,
        "launch_microseconds": launch_microseconds,
        "hours_per_run": hours_per_run,
        "runs_per_year": runs_per_year,
        "price_per_hour_usd": price_per_hour_usd,
    }
    factory = None
    if loader is None and trainer_options is None:
        factory = _factory(training, gpu)
    if factory is not None:
        request = _request(factory, given, current_batch_size)
        return analyze_script(request, emit, recorded_for(request, recorded))
    live = Live.of(training, loader, trainer_options)
    if gradient_accumulation not in (1, live.gradient_accumulation):
        raise InvalidInput({"gradient_accumulation": "the training decides this; leave it out"})
    given["gradient_accumulation"] = live.gradient_accumulation
    current = live.batch_size if current_batch_size is None else current_batch_size
    if current is None:
        raise InvalidInput({"current_batch_size": "say which is used today"})
    request = _request(live, given, current)
    return analyze_script(request, emit, recorded_for(request, recorded))


def _factory(training: object, gpu: str) -> Factory | None:
    """The factory that a name or a function of a module is; ``None`` for what lives here.

    Any function has to be one if it is to be measured.
    """
    from .script.factory import Factory  # loads torch, which not all need

    if isinstance(training, FunctionType) and gpu != "local":
        return Factory.of(training) if training.__qualname__.isidentifier() else None
    return Factory.of(training) if isinstance(training, str | FunctionType) else None


def _request(
    script: Factory | Live, given: Mapping[str, object], batch_size: int | None
) -> ScriptRequest:
    """The request for a script at a batch size; ``None`` is the default one."""
    from .script.request import ScriptRequest  # loads torch, which not all need

    return ScriptRequest.parse(script, {**given, "current_batch_size": batch_size})
