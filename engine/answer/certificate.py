"""Facts to reproduce an answer: commands for both sides of the limit, and the device measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..features.training import MAX_ACCUMULATION
from ..interface.program import ProgramRequest
from ..interface.request import TRIAL_FIELDS, AnalysisRequest, Request, as_flags
from ..interface.result import MeasuredOn
from ..interface.trial import Source
from ..interface.workload import Workload


def model_commands(
    request: AnalysisRequest, source: Source, batch_sizes: tuple[int, ...]
) -> list[str]:
    """The commands for a model; arguments as for :func:`repeat_commands`."""
    plain = Workload(request.workload.model, config=request.workload.config)
    defaults = AnalysisRequest(plain, gpu=request.gpu).to_dict() | {"config": None}
    changed = {n: value for n, value in request.to_dict().items() if value != defaults.get(n)}
    return repeat_commands(request, ([request.workload.model], []), changed, source, batch_sizes)


def commands_of(
    request: AnalysisRequest | ProgramRequest, source: Source, batch_sizes: tuple[int, ...]
) -> list[str]:
    """The commands for a model or a script; none for a script that no command names.

    Arguments as for :func:`repeat_commands`.
    """
    if isinstance(request, AnalysisRequest):
        return model_commands(request, source, batch_sizes)
    if not request.program.words:
        return []
    changed = {
        "memory_limit_bytes": request.memory_limit_bytes,
        "allocator": request.allocator or None,
        "software": request.software or None,
    }
    words = request.program.command_words
    return repeat_commands(request, words, changed, source, batch_sizes)


def repeat_commands(
    request: Request,
    trained: tuple[Sequence[str], Sequence[str]],
    changed: Mapping[str, object],
    source: Source,
    batch_sizes: tuple[int, ...],
) -> list[str]:
    """One command for each batch size.

    Args:
        request: The GPU and the accumulation.
        trained: The arguments that name the model or the script: before the flags, and after them.
        changed: The request's fields that are not at their defaults; those without a flag are left
            out.
        source: ``measured`` gives commands that measure, anything else commands that predict.
        batch_sizes: The batch sizes to repeat.
    """
    measured = source is Source.MEASURED
    known = TRIAL_FIELDS if measured else ("gpu", *TRIAL_FIELDS)

    def command(batch_size: int) -> str:
        before, after = trained
        words = ["memorymark", "measure" if measured else "predict", *before]
        # The number that keeps the global batch at this size, not today's.
        accumulated = min(request.accumulation_at(batch_size), MAX_ACCUMULATION)
        given = {
            **changed,
            "gpu": request.gpu,
            "gradient_accumulation": accumulated if accumulated > 1 else None,
        }
        given.pop("current_batch_size", None)
        words += as_flags({name: value for name, value in given.items() if name in known})
        return shlex.join([*words, "--batch-size", str(batch_size), *after])

    return [command(size) for size in batch_sizes]


def measured_on_rows(found: MeasuredOn) -> list[tuple[str, str]]:
    """Device, libraries and settings, each with its label; what is not known is left out."""
    rows = [
        ("Device", _joined(found.device, _named("compute capability", found.compute_capability))),
        (
            "Libraries",
            _joined(
                f"torch {found.torch}",
                f"transformers {found.transformers}",
                _named("CUDA", found.cuda),
                _named("driver", found.driver),
            ),
        ),
        (
            "fp32 products",
            found.matmul_precision
            and f"matrix {found.matmul_precision}, convolution {found.convolution_precision}",
        ),
        ("cuDNN", _cudnn(found)),
        ("Allocator options", (found.allocator or "PyTorch's default") if found.cuda else ""),
        ("Power and clock", _power(found)),
        ("Host threads", f"{found.cpu_threads:,}"),
    ]
    return [(label, value) for label, value in rows if value]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _named(name: str, value: str) -> str:
    return f"{name} {value}" if value else ""


def _cudnn(found: MeasuredOn) -> str:
    if not found.cudnn:
        return ""
    benchmark = "on" if found.cudnn_benchmark else "off"
    deterministic = "only" if found.deterministic else "not required"
    return f"{found.cudnn}, benchmark {benchmark}, deterministic algorithms {deterministic}"


def _power(found: MeasuredOn) -> str:
    watts, clock, largest = found.power_limit_watts, found.clock_mhz, found.largest_clock_mhz
    return _joined(
        "" if watts is None else f"limit {watts:,.0f} W",
        "" if clock is None else f"{clock:,} MHz before a step",
        "" if largest is None else f"at most {largest:,} MHz",
    )
