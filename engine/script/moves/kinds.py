"""The moves that can be made in a script."""

from __future__ import annotations

from enum import StrEnum

from ...core.errors import EngineError


class ScriptMove(StrEnum):
    """A move that can be made in a script while it is traced."""

    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FUSED_OPTIMIZER = "fused optimizer"
    CHECKPOINTING = "gradient checkpointing"
    NO_CHECKPOINTING = "no gradient checkpointing"


FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of ``torch.optim`` that have a fused kernel on GPUs."""


class MoveNotMade(EngineError):
    """A script has nothing that a move could be made on."""

    code = "move_not_made"

    def __init__(self, script: str, move: ScriptMove) -> None:
        super().__init__(f"{script} {_WITHOUT[move]}")


_WITHOUT = {
    ScriptMove.BF16: "runs no module with weights that are trained",
    ScriptMove.FP16: "runs no module with weights that are trained",
    ScriptMove.FUSED_OPTIMIZER: "makes no optimizer of PyTorch's that has a fused kernel",
    ScriptMove.CHECKPOINTING: (
        "trains no model that offers checkpointing, and none with a list of like blocks"
    ),
    ScriptMove.NO_CHECKPOINTING: (
        "computes again in a way of its own, not by torch.utils.checkpoint"
    ),
}
