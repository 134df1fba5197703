"""The moves that are tried in a script, by what its step does today."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.gpus import GPUS
from engine.prediction.scripts.moves import made_in_scripts, moves_in
from engine.script.moves.kinds import ScriptMove
from engine.tracing.trace import RECOMPUTATION, Operation, Trace

PRODUCT = Operation("aten.addmm", "float32", 10**9, 10**6, "forward")
FOREACH = Operation("aten._foreach_mul_", "float32", 0, 10**6, "optimizer")
FUSED = Operation("aten._fused_adamw_", "float32", 0, 10**6, "optimizer")
STEP = Trace(8, operations=[PRODUCT, FUSED], optimizers=("AdamW",))


def names(step: Trace, gpu: str = "a10") -> list[str]:
    return [move.name for move in moves_in(step, GPUS[gpu])]


def test_fp32_is_left_for_what_the_gpu_has() -> None:
    assert names(STEP) == ["tf32", "bf16", "gradient checkpointing"]
    assert names(replace(STEP, tf32=True)) == ["bf16", "gradient checkpointing"]
    assert names(STEP, "t4") == ["fp16", "gradient checkpointing"]


def test_a_script_in_half_precision_keeps_it() -> None:
    half = replace(PRODUCT, dtype="bfloat16")
    few = replace(PRODUCT, flops=10**6)
    assert names(replace(STEP, operations=[half, few, FUSED])) == ["gradient checkpointing"]


@pytest.mark.parametrize(
    ("optimizers", "offered"),
    [
        (("AdamW",), ["fused AdamW"]),
        (("Adam", "SGD"), ["fused Adam and SGD"]),
        (("RMSprop",), []),
        ((), []),
    ],
)
def test_optimizers_with_a_fused_kernel_are_tried_with_it(
    optimizers: tuple[str, ...], offered: list[str]
) -> None:
    step = replace(STEP, operations=[FOREACH], optimizers=optimizers)
    assert [name for name in names(step) if name.startswith("fused")] == offered


def test_a_fused_optimizer_stays_though_gradients_are_clipped_by_foreach_kernels() -> None:
    step = replace(STEP, operations=[PRODUCT, FOREACH, FUSED])
    assert not [name for name in names(step) if name.startswith("fused")]


def test_checkpointing_is_tried_the_other_way_round() -> None:
    again = replace(PRODUCT, phase=RECOMPUTATION)
    assert names(replace(STEP, operations=[again, FUSED]), "t4")[1:] == [
        "no gradient checkpointing"
    ]


def test_every_move_can_be_made_in_a_script() -> None:
    every = [
        *moves_in(replace(STEP, operations=[PRODUCT, FOREACH]), GPUS["a10"]),
        *moves_in(replace(STEP, operations=[replace(PRODUCT, phase=RECOMPUTATION)]), GPUS["t4"]),
    ]
    assert {one for move in every for one in made_in_scripts((move,))} == {*ScriptMove}
