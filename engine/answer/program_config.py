"""The lines that record a run of somebody's own script, so that the lab sees what came true."""

from __future__ import annotations

from collections.abc import Sequence

from ..interface.program import TracedProgram
from .config_parts import joined, named_analysis, quoted, sink_lines, sink_names
from .training_config import TrainingConfig

_CALLBACKS = {
    "Trainer": "memorymark.recording.trainer",
    "Lightning": "memorymark.recording.lightning",
}


def program_configs(
    program: TracedProgram,
    batch_size: int,
    analysis_id: int | None = None,
    move_lines: Sequence[str] = (),
) -> list[TrainingConfig]:
    """The lines that make the moves, and those for a plain loop, a Trainer and Lightning.

    Args:
        program: The script.
        batch_size: Samples per micro-batch.
        analysis_id: The lab's analysis that the run is reported to; ``None`` records it in a file.
        move_lines: Those of the moves of the answer.
    """
    changed = [TrainingConfig("Changes", joined(*move_lines))] if move_lines else []
    loop = TrainingConfig("PyTorch", _loop(program, batch_size, analysis_id))
    return [
        *changed,
        loop,
        *(
            TrainingConfig(name, _callback(program, module, analysis_id))
            for name, module in _CALLBACKS.items()
        ),
    ]


def _named(program: TracedProgram) -> str:
    return f"program={quoted(program.name)},"


def _hashed(program: TracedProgram) -> str:
    return f"program_hash={quoted(program.hash)},"


def _loop(program: TracedProgram, batch_size: int, analysis_id: int | None) -> str:
    return joined(
        f"from memorymark.recording import record_training, {sink_names(analysis_id)}",
        "",
        *sink_lines(analysis_id),
        "with record_training(",
        f"    batch_size={batch_size}, model=model,",
        f"    {_named(program)}",
        f"    {_hashed(program)}",
        f"    sink=sink{named_analysis(analysis_id)},",
        ") as recording:",
        "    for batch in loader:",
        "        ...  # your step",
        "        recording.step()",
    )


def _callback(program: TracedProgram, module: str, analysis_id: int | None) -> str:
    return joined(
        f"from memorymark.recording import {sink_names(analysis_id)}",
        f"from {module} import MemoryMarkCallback",
        "",
        *sink_lines(analysis_id),
        "recorder = MemoryMarkCallback(",
        f"    sink{named_analysis(analysis_id)},",
        f"    {_named(program)}",
        f"    {_hashed(program)}",
        ")  # callbacks=[recorder]",
    )
