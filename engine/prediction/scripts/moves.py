"""The moves that may help a script on a GPU: those that can be made in it while it is traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...answer.ladder import CHECKPOINTING, NO_CHECKPOINTING, Learning, Move
from ...core.choices import Precision
from ...gpus import Gpu
from ...script.moves.kinds import FUSED, ScriptMove
from ...tracing.trace import RECOMPUTATION, Trace
from ..plans.moves import HALF

_MIN_SHARE = 0.5
"""Share of a step's products in fp32 from which on its number format is worth a move: a script that
autocasts keeps a few in fp32."""


def moves_in(step: Trace, gpu: Gpu) -> list[Move]:
    """Every single move that makes a difference to a script.

    Args:
        step: A step of it, without a move.
        gpu: The GPU.
    """
    moves = [*_of_precision(step, gpu)]
    has_one = [name for name in step.optimizers if name in FUSED]
    if has_one and not any(one.name.startswith("aten._fused_") for one in step.operations):
        moves.append(Move(f"fused {' and '.join(has_one)}", {"optimizer": "fused"}))
    if any(one.phase == RECOMPUTATION for one in step.operations):
        moves.append(Move(NO_CHECKPOINTING, {"gradient_checkpointing": False}))
    else:
        moves.append(Move(CHECKPOINTING, {"gradient_checkpointing": True}))
    return moves


def _of_precision(step: Trace, gpu: Gpu) -> Iterator[Move]:
    work: Counter[str] = Counter()
    for one in step.operations:
        work[one.dtype] += one.flops
    if not work.total() or work["float32"] < _MIN_SHARE * work.total():
        return
    if not step.tf32 and gpu.tf32_flops is not None:
        yield Move("tf32", {"precision": Precision.TF32}, Learning.NUMERICS)
    if gpu.bf16_flops is None:
        yield Move(HALF, {"precision": Precision.FP16_MIXED}, Learning.NUMERICS)
    else:
        yield Move("bf16", {"precision": Precision.BF16_MIXED}, Learning.NUMERICS)


_MADE = {
    ("precision", Precision.TF32): ScriptMove.TF32,
    ("precision", Precision.BF16_MIXED): ScriptMove.BF16,
    ("precision", Precision.FP16_MIXED): ScriptMove.FP16,
    ("optimizer", "fused"): ScriptMove.FUSED_OPTIMIZER,
    ("gradient_checkpointing", True): ScriptMove.CHECKPOINTING,
    ("gradient_checkpointing", False): ScriptMove.NO_CHECKPOINTING,
}


def made_in_scripts(moves: tuple[Move, ...]) -> tuple[ScriptMove, ...]:
    """The same moves, as they are made in a script."""
    return tuple(_MADE[changed] for move in moves for changed in move.fields.items())
