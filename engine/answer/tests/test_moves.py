"""Combinations of moves that are tried, given the results of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.ladder import (
    ACCUMULATION,
    CHECKPOINTING,
    NO_CACHE,
    NO_CHECKPOINTING,
    Learning,
    Rung,
)
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.prediction.plans.combinations import Combination, Reached, next_combinations
from engine.prediction.plans.moves import (
    APOLLO,
    CHUNKED,
    EIGHT_BIT,
    FOUR_BIT,
    LORA,
    QLORA,
    least_bytes,
    moves_for,
    sharded,
)

ACC = (ACCUMULATION,)
LENGTHS = {"batching": "longest", "sample_lengths": "p50=12,max=32"}


def ask(gpu: str = "a10", **fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": gpu, "sequence_length": 32} | fields)


def names(request: AnalysisRequest) -> list[str]:
    return [move.name for move in moves_for(request, GPUS[request.gpu])]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            ask(),
            ["tf32", "bf16", "bf16 weights", CHECKPOINTING, EIGHT_BIT, APOLLO, *ACC, LORA, QLORA],
        ),
        (ask("t4"), ["fp16", CHECKPOINTING, EIGHT_BIT, APOLLO, *ACC, LORA, QLORA]),
        (
            ask(precision="bf16-mixed", optimizer="adamw-foreach", gradient_checkpointing=True),
            ["bf16 weights", "fused AdamW", NO_CHECKPOINTING, EIGHT_BIT, APOLLO, *ACC, LORA, QLORA],
        ),
        (ask(precision="bf16-true", optimizer="sgd", lora_rank=4), [CHECKPOINTING, *ACC, FOUR_BIT]),
        (
            ask(precision="bf16-true", lora_rank=4, quantization="nf4"),
            [CHECKPOINTING, EIGHT_BIT, *ACC],
        ),
        (
            ask(model="gpt2", precision="bf16-true", optimizer="none", use_cache=True),
            [CHECKPOINTING, NO_CACHE, CHUNKED, *ACC, LORA, QLORA],
        ),
        (
            ask(precision="bf16-true", optimizer="lion", lora_rank=4, **LENGTHS),
            [CHECKPOINTING, "bucketed batches", *ACC, FOUR_BIT],
        ),
        (
            ask(model="gpt2", precision="bf16-true", optimizer="lion", lora_rank=4, **LENGTHS),
            [CHECKPOINTING, CHUNKED, "bucketed batches", "padding-free batches", *ACC, FOUR_BIT],
        ),
        (
            ask(precision="bf16-true", optimizer="lion", gradient_accumulation=4),
            [CHECKPOINTING, "less accumulation", LORA, QLORA],
        ),
        (
            ask(precision="bf16-true", optimizer="lion", global_batch_size=64),
            [CHECKPOINTING, LORA, QLORA],
        ),
        (
            ask(precision="bf16-true", optimizer="lion", parallelism="fsdp", world_size=2),
            [CHECKPOINTING, *ACC, LORA, QLORA],
        ),
        (
            ask(precision="bf16-mixed", optimizer="lion", parallelism="fsdp", world_size=8),
            ["bf16 weights", CHECKPOINTING, *ACC, LORA, QLORA, "ZeRO 3"],
        ),
        (
            ask(precision="bf16-mixed", optimizer="lion", parallelism="zero-2", world_size=8),
            [CHECKPOINTING, *ACC, LORA, QLORA, "FSDP"],
        ),
        (
            ask(sequence_length=128, current_batch_size=1, optimizer="lion", precision="bf16-true"),
            [CHECKPOINTING, "sequences of 64 tokens", LORA, QLORA],
        ),
    ],
)
def test_only_moves_that_make_a_difference_are_offered(
    request_: AnalysisRequest, expected: list[str]
) -> None:
    assert names(request_) == expected


def test_accumulation_is_traded_for_batch_at_the_same_global_batch() -> None:
    request = ask(gradient_accumulation=4, current_batch_size=8)
    move = next(m for m in moves_for(request, GPUS["a10"]) if m.name == "less accumulation")
    assert (move.fields, move.learning) == ({"global_batch_size": 32}, Learning.NONE)


def test_more_accumulation_is_at_the_same_global_batch() -> None:
    move = next(m for m in moves_for(ask(), GPUS["a10"]) if m.name == ACCUMULATION)
    assert (move.fields, move.learning) == ({"global_batch_size": 16}, Learning.NONE)


def test_without_checkpointing_no_layer_is_chosen() -> None:
    request = ask(gradient_checkpointing=True, checkpoint_every=2)
    (move,) = (m for m in moves_for(request, GPUS["a10"]) if m.name == NO_CHECKPOINTING)
    assert move.fields == {"gradient_checkpointing": False, "checkpoint_every": 1}


def test_more_gpus_are_for_a_workload_on_one() -> None:
    assert [move.fields["world_size"] for move in sharded(ask())] == [2, 4, 8]
    assert sharded(ask(parallelism="ddp", world_size=2)) == []


def test_the_least_memory_counts_weights_gradients_and_state() -> None:
    def least(**fields: Any) -> float:
        return least_bytes(Workload("bert", **fields), 1.0)

    assert least() == 16
    assert least(optimizer="adamw-8bit") == 10
    assert least(precision="bf16-true") == 8
    assert least(precision="bf16-true", lora_rank=8) == 2
    assert least(precision="bf16-true", lora_rank=8, quantization="nf4") == 0.5
    assert least(parallelism="fsdp", world_size=4) == 4
    assert least(parallelism="fsdp", world_size=4, cpu_offload=True) == 0
    assert least(optimizer="none") == 8


# --- the search, in a world that is made up ---------------------------------------------------


World = Callable[[Combination], Reached]


def world(
    need: dict[str, float],
    speeds: dict[str, float],
    available: float,
    current: float | None = None,
) -> World:
    """Each move multiplies what is needed, and the speed where it fits.

    Args:
        need: What is needed with each move, as a share of what is without.
        speeds: The speed with each move, in the same way.
        available: What there is, as a share of what the smallest batch needs without a move.
        current: What the current batch needs, in the same way; nothing if it always fits.
    """

    def reach(moves: Combination) -> Reached:
        needed = math.prod(need.get(move.name, 1.0) for move in moves)
        fields = {name: value for move in moves for name, value in move.fields.items()}
        rung = Rung([move.name for move in moves], fields, fits=needed <= available)
        if not rung.fits:
            return Reached(rung)
        speed = math.prod(speeds.get(move.name, 1.0) for move in moves)
        found = Rung(rung.moves, fields, fits=True, samples_per_second=speed)
        loses = current is not None and current * needed > available
        return Reached(found, memory_bound=needed > available / 2, loses_batch=loses)

    return reach


def climb(request: AnalysisRequest, reach: World) -> dict[tuple[str, ...], Reached]:
    moves, shards = moves_for(request, GPUS[request.gpu]), sharded(request)
    found: dict[Combination, Reached] = {(): reach(())}
    while following := next_combinations(found, moves, shards, lambda _: True):
        assert not set(following) & found.keys()
        found |= {one: reach(one) for one in following}
    return {tuple(move.name for move in one): reached for one, reached in found.items()}


def test_what_helps_alone_is_combined() -> None:
    speeds = {"tf32": 1.5, "bf16": 3.0, EIGHT_BIT: 1.2, LORA: 1.3, CHECKPOINTING: 0.8}
    found = climb(ask(), world({}, speeds, available=1.5))
    best = max(found.values(), key=lambda reached: reached.speed)
    assert set(best.rung.moves) == {"bf16", LORA}  # whose optimizer state is small
    assert ("bf16", EIGHT_BIT) in found
    assert (LORA,) not in found
    assert not any("tf32" in one and len(one) > 1 for one in found)


def test_where_memory_does_not_matter_no_move_saves_it() -> None:
    found = climb(ask(), world({}, {"bf16": 2.0}, available=100.0))
    assert set(found) == {(), ("tf32",), ("bf16",), ("bf16", LORA)}


def test_weights_that_are_not_trained_may_be_in_bf16() -> None:
    request = ask(precision="bf16-mixed", lora_rank=8)
    plain = world({}, {"bf16 weights": 1.5}, available=100.0)

    def adapted(moves: Combination) -> Reached:
        return replace(plain(moves), is_adapted=True)

    assert set(climb(request, plain)) == {()}
    assert ("bf16 weights",) in climb(request, adapted)


def test_the_least_change_that_makes_it_fit_is_found() -> None:
    need = {CHECKPOINTING: 0.5, "bf16 weights": 0.5, EIGHT_BIT: 0.9, LORA: 0.3}
    found = climb(ask(), world(need, {}, available=0.25))
    fitting = {one for one, reached in found.items() if reached.rung.fits}
    assert ("bf16 weights", CHECKPOINTING) in fitting


def test_what_loses_the_current_batch_is_tried_with_the_obvious_moves() -> None:
    request = ask(model="gpt2", sequence_length=1024)
    found = climb(request, world({CHECKPOINTING: 0.5}, {CHECKPOINTING: 0.8}, 5.0, current=6.0))
    for move in (CHECKPOINTING, EIGHT_BIT, CHUNKED, ACCUMULATION, "sequences of 512 tokens"):
        assert (move,) in found
    assert not any(CHECKPOINTING in one and len(one) > 1 and EIGHT_BIT in one for one in found)
    assert (QLORA,) not in found


def test_pairs_are_tried_where_no_move_alone_keeps_the_batch() -> None:
    request = ask(model="gpt2", sequence_length=1024)
    need = {CHECKPOINTING: 0.5, CHUNKED: 0.5}
    found = climb(request, world(need, {}, 5.0, current=16.0))
    assert not found[CHECKPOINTING, CHUNKED].loses_batch
    for other in (EIGHT_BIT, ACCUMULATION, "sequences of 512 tokens"):
        assert (CHECKPOINTING, other) in found
    assert len(found) <= 16


def test_a_move_that_keeps_the_batch_is_added_though_it_is_slower() -> None:
    need, speeds = {CHECKPOINTING: 0.5}, {CHECKPOINTING: 0.8, "bf16": 3.0}
    found = climb(ask(), world(need, speeds, 5.0, current=6.0))
    assert not found["bf16", CHECKPOINTING].loses_batch


def test_qlora_is_tried_with_checkpointing_where_nothing_fits() -> None:
    found = climb(ask(), world({CHECKPOINTING: 0.3, QLORA: 0.3}, {}, available=0.1, current=16.0))
    assert found[CHECKPOINTING, QLORA].rung.fits
    assert (CHECKPOINTING, ACCUMULATION, QLORA) in found
    assert not any({QLORA, EIGHT_BIT} <= set(one) for one in found)
    assert len(found) <= 32


def test_another_optimizer_is_tried_where_its_state_is_what_does_not_fit() -> None:
    need = {EIGHT_BIT: 0.6, APOLLO: 0.4, LORA: 0.3}
    found = climb(ask(), world(need, {}, available=0.45))
    fitting = {one for one, reached in found.items() if reached.rung.fits}
    assert (APOLLO,) in fitting
    assert not any({APOLLO, EIGHT_BIT} <= set(one) or {APOLLO, LORA} <= set(one) for one in found)
    assert not any(APOLLO in one for one in climb(ask(), world(need, {}, available=1.0)))


def test_more_gpus_are_tried_where_one_is_too_small_without_lora() -> None:
    need = {LORA: 0.1, "2 GPUs with FSDP": 0.6, "4 GPUs with FSDP": 0.3}
    found = climb(ask(), world(need, {}, available=0.5))
    assert found["4 GPUs with FSDP",].rung.fits
    assert ("8 GPUs with FSDP",) not in found
    need["bf16"] = 0.4
    assert not any("FSDP" in str(one) for one in climb(ask(), world(need, {}, available=0.5)))


SHARES = st.dictionaries(
    st.sampled_from(["tf32", "bf16", "bf16 weights", CHECKPOINTING, EIGHT_BIT, APOLLO, LORA]),
    st.floats(0.2, 1.0),
)
FACTORS = st.dictionaries(
    st.sampled_from(["tf32", "bf16", "bf16 weights", CHECKPOINTING, EIGHT_BIT, APOLLO, LORA]),
    st.floats(0.5, 4.0),
)


@given(SHARES, FACTORS, st.floats(0.01, 2.0), st.none() | st.floats(1.0, 20.0))
def test_the_search_ends_soon_and_finds_what_fits(
    need: dict[str, float], speeds: dict[str, float], available: float, current: float | None
) -> None:
    found = climb(ask(), world(need, speeds, available, current))
    assert () in found
    assert len(found) <= 32
    saving = [need.get(name, 1.0) for name in ("bf16 weights", CHECKPOINTING, LORA)]
    if math.prod(saving) <= available:
        assert any(reached.rung.fits for reached in found.values())
