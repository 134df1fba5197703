"""Deep models are traced by way of shallow ones, and come out exactly the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers.models.bert.modeling_bert import BertEncoder

from benchmarks.coverage.small_configs import small_config
from engine.allocator.caching import ALLOCATE, FREE
from engine.events import Event as Emitted
from engine.events import Log
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.models.presets import Preset
from engine.prediction.predicted_analysis import analyze_predicted
from engine.tests.shared import slow, small_workload
from engine.traces import shallow_models, workloads
from engine.traces.shallow_models import ShallowModels
from engine.traces.tracer import WholeModel, trace, trace_model
from engine.traces.workloads import trace_workload
from engine.tracing.alignment import NotRepeating, aligned, between
from engine.tracing.blocks import Run, runs_of, with_fewer
from engine.tracing.depth import check_alike
from engine.tracing.depth_events import Event, Rank, ranks_of
from engine.tracing.every_batch import NotAffine
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

small = pytest.mark.usefixtures("small_models")
HOPPER = cuda_behaviour(9.0)

WINDOWS = ["sliding_attention", "full_attention"]


def deep(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Give small models more blocks."""
    config = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: config(preset) | changed)


def assert_same_as_whole(workload: Workload, batch_sizes: tuple[int, ...] = (3, 2)) -> str:
    """Assert that a workload's trace is that of the whole model; how it was traced."""
    traced = ShallowModels(WholeModel(workload, HOPPER))
    for batch_size in batch_sizes:  # the second needs one shallow model only
        traced.at(batch_size)
    for batch_size in [*traced.traces]:  # one more may have come of the check
        found, expected = traced.at(batch_size), trace(workload, batch_size, HOPPER)
        assert found == expected
        assert found.operations == expected.operations
        assert found.host_bytes == expected.host_bytes
    return traced.how


@pytest.mark.longer
@small
@pytest.mark.parametrize(
    ("model", "blocks", "fields"),
    [
        ("gpt2", {"n_layer": 9}, {"precision": "bf16-mixed"}),
        slow("llama-3.2-1b", {"num_hidden_layers": 9}, {"lora_rank": 2, "optimizer": "sgd"}),
        slow("qwen3-0.6b", {"num_hidden_layers": 9}, {"optimizer": "adamw-8bit"}),
        slow("gpt2", {"n_layer": 9}, {"optimizer_offload": True}),
        slow("llama-3.2-1b", {"num_hidden_layers": 9}, {"optimizer": "schedule-free-adamw"}),
        slow("gpt2", {"n_layer": 9}, {"optimizer": "muon"}),
        slow("bert", {"num_hidden_layers": 9}, {"optimizer": "galore", "optimizer_rank": 8}),
        slow("bert", {"num_hidden_layers": 9}, {"optimizer": "apollo", "optimizer_rank": 8}),
        slow("gpt2", {"n_layer": 9}, {"optimizer": "soap"}),
        slow("gpt2", {"n_layer": 9}, {"optimizer": "shampoo"}),
        slow("llama-3.2-1b", {"num_hidden_layers": 9}, {"optimizer_in_backward": True}),
        slow("bert", {"num_hidden_layers": 9}, {"precision": "fp16-mixed", "optimizer": "sgd"}),
        slow("mistral-7b", {"num_hidden_layers": 9}, {"gradient_checkpointing": True}),
        slow("qwen3-8b", {"num_hidden_layers": 9}, {"gradient_accumulation": 2, "use_cache": True}),
    ],
)
def test_a_deep_model_comes_out_as_if_it_were_traced_whole(
    monkeypatch: pytest.MonkeyPatch, model: str, blocks: dict[str, int], fields: dict[str, Any]
) -> None:
    deep(monkeypatch, **blocks)
    how = assert_same_as_whole(small_workload(model, **fields), (3,))
    assert how == "with 2 to 4 blocks in place of 9"


@small
def test_what_is_freed_at_once_may_be_freed_in_any_order() -> None:
    traced = trace(small_workload("gpt2"), 2, HOPPER)
    events = list(traced.events)
    at = next(i for i, (one, other) in enumerate(pairwise(events)) if one[0] == other[0] == FREE)
    events[at : at + 2] = reversed(events[at : at + 2])
    check_alike(replace(traced, events=events), traced)
    between_two = next(i for i, (kind, _) in enumerate(events) if kind == FREE)
    events[between_two - 1 : between_two + 1] = reversed(events[between_two - 1 : between_two + 1])
    with pytest.raises(NotRepeating):
        check_alike(replace(traced, events=events), traced)


@small
@pytest.mark.slow
def test_what_frees_gradients_in_another_order_is_traced_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep(monkeypatch, num_hidden_layers=12)
    how = assert_same_as_whole(small_workload("bert", optimizer="galore-8bit", optimizer_rank=8))
    assert how == "as a whole, since with still more blocks, a step does something else"


@small
@pytest.mark.slow
def test_gradients_that_add_up_over_all_blocks_come_out_as_in_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep(monkeypatch, num_hidden_layers=19)
    how = assert_same_as_whole(small_workload("deberta-v3"))
    assert how == "with 2 to 4 blocks in place of 19"


@small
@pytest.mark.slow
def test_blocks_may_repeat_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    deep(monkeypatch, num_hidden_layers=19, layer_types=[*WINDOWS * 9, "full_attention"])
    how = assert_same_as_whole(small_workload("gemma-3-1b", sequence_length=16), (3,))
    assert how == "with 4 to 8 blocks in place of 18"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_blocks_of_two_kinds_are_numbered_where_they_have_a_number() -> None:
    config = small_config("qwen3_next") | {
        "num_hidden_layers": 24,
        "layer_types": ["linear_attention", "full_attention"] * 12,
    }
    how = assert_same_as_whole(Workload("mixed", config=config, sequence_length=16))
    assert how == "with 4 to 8 blocks in place of 24"


@small
@pytest.mark.slow
def test_layers_recomputed_by_turns_repeat_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    deep(monkeypatch, num_hidden_layers=24)
    fields = {"gradient_checkpointing": True, "checkpoint_every": 2}
    how = assert_same_as_whole(small_workload("llama-3.2-1b", **fields))
    assert how == "with 4 to 8 blocks in place of 24"


@small
@pytest.mark.parametrize("cpu_offload", [False, True])
@pytest.mark.slow
def test_the_shards_of_a_deep_model_come_out_the_same(
    cpu_offload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep(monkeypatch, num_hidden_layers=19)
    fields = {"parallelism": "fsdp", "world_size": 2, "cpu_offload": cpu_offload}
    workload = small_workload("llama-3.2-1b", **fields)
    assert "blocks in place of 19" in assert_same_as_whole(workload)


@small
@pytest.mark.parametrize(
    ("fields", "how"),
    [
        ({"precision": "bf16-mixed"}, "with 2 to 4 blocks"),
        ({"world_size": 4, "tensor_parallel": 2}, "with 2 to 4 blocks"),
        ({"world_size": 4, "parallelism": "fsdp", "gradient_checkpointing": True}, "as a whole"),
    ],
)
@pytest.mark.slow
def test_a_stage_of_a_pipeline_comes_out_as_if_it_were_traced_whole(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], how: str
) -> None:
    deep(monkeypatch, num_hidden_layers=18)
    shared = {"pipeline_parallel": 2, "world_size": 2, "gradient_accumulation": 3} | fields
    workload = small_workload("llama-3.2-1b", **shared)
    for rank in (0, workload.world_size // 2):
        traced = ShallowModels(WholeModel(workload, HOPPER, rank))
        for batch_size in (3, 2):
            found, expected = traced.at(batch_size), trace(workload, batch_size, HOPPER, rank=rank)
            assert found == expected
            assert found.operations == expected.operations
        assert traced.how.startswith(how)


@small
@pytest.mark.parametrize("fields", [{"method": "dpo"}, {"method": "kto", "cpu_offload": True}])
@pytest.mark.slow
def test_a_reference_that_is_gathered_in_one_piece_grows_with_its_blocks(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep(monkeypatch, num_hidden_layers=12)
    sharded = {"parallelism": "fsdp", "world_size": 2, "precision": "bf16-mixed"}
    how = assert_same_as_whole(small_workload("llama-3.2-1b", **sharded, **fields))
    assert how == "with 4 to 8 blocks in place of 24"


@small
@pytest.mark.slow
def test_hidden_states_of_all_blocks_are_freed_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep(monkeypatch, num_hidden_layers=16)
    workload = small_workload("llama-3.2-1b", method="ppo", completion_length=16)
    assert assert_same_as_whole(workload, (3,)) == "with 8 to 16 blocks in place of 64"


@pytest.mark.slow
@small
@pytest.mark.parametrize(
    ("blocks", "fields"), [(9, {"parallelism": "ddp", "world_size": 2}), (8, {})]
)
def test_what_does_not_repeat_or_is_not_deep_is_traced_whole(
    blocks: int, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep(monkeypatch, num_hidden_layers=blocks)
    assert assert_same_as_whole(small_workload("bert", **fields), (3,)) == "as a whole"


@pytest.mark.slow
@small
def test_a_model_that_needs_all_of_its_blocks_is_traced_whole_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> nn.Module:
        raise IndexError("list index out of range")

    deep(monkeypatch, num_hidden_layers=9)
    monkeypatch.setattr(shallow_models, "with_fewer", broken)
    how = assert_same_as_whole(small_workload("bert"), (3,))
    assert how == "as a whole, since IndexError: list index out of range"


@pytest.mark.longer
@small
@pytest.mark.parametrize(
    ("blocks", "extra", "how"),
    [
        slow(16, lambda blocks: 256 if blocks > 3 else 0, "with 4 to 6 blocks in place of 16"),
        (9, lambda blocks: 256 * blocks**2, "as a whole, since"),
    ],
)
def test_what_deeper_models_alone_do_is_found_by_tracing_one(
    monkeypatch: pytest.MonkeyPatch, blocks: int, extra: Callable[[int], int], how: str
) -> None:
    """A step makes a tensor more, of a size that depends on the number of blocks."""
    forward = BertEncoder.forward

    def with_extra(self: BertEncoder, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if size := extra(len(self.layer)):
            self.extra = states.new_zeros(size)
        return forward(self, states, *args, **kwargs)

    deep(monkeypatch, num_hidden_layers=blocks)
    monkeypatch.setattr(BertEncoder, "forward", with_extra)
    assert assert_same_as_whole(small_workload("bert"), (3,)).startswith(how)


@pytest.mark.slow
@small
def test_what_was_found_before_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    deep(monkeypatch, num_hidden_layers=9)
    workload = small_workload("bert")
    first = ShallowModels(WholeModel(workload, HOPPER))
    first.at(2)
    monkeypatch.setattr(ShallowModels, "_checked", None)  # fails if it is called
    assert ShallowModels(WholeModel(workload, HOPPER), first.margin).at(1) == trace(
        workload, 1, HOPPER
    )


@pytest.mark.longer
@small
def test_the_log_says_how_a_step_was_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    deep(monkeypatch, num_hidden_layers=12)
    events: list[Emitted] = []
    trace_workload(small_workload("bert"), HOPPER, events.append)
    logged = [event.message for event in events if isinstance(event, Log)]
    assert "at 2 batch sizes, with 2 to 4 blocks in place of 12: " in logged[-1]


@small
@pytest.mark.slow
def test_batch_sizes_that_are_not_alike_are_each_traced_by_way_of_shallow_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole: list[int] = []

    def count(source: WholeModel, model: Any, batch_size: int) -> Trace:
        whole.extend([batch_size] * (len(model.bert.encoder.layer) == 12))
        return trace_model(model, source.workload, batch_size, source.behaviour)

    deep(monkeypatch, num_hidden_layers=12)
    monkeypatch.setattr(workloads, "trace_every_batch_size", not_alike)
    monkeypatch.setattr(WholeModel, "trace", count)
    workload = small_workload("bert")
    events: list[Emitted] = []
    traces = trace_workload(workload, HOPPER, events.append)
    for batch_size in (3, 5):
        assert traces.at(batch_size) == trace(workload, batch_size, HOPPER)
        assert traces.at(batch_size).alone
    assert whole == []
    (warned,) = (one for one in events if isinstance(one, Log) and one.level == "warning")
    assert warned.message == "not alike; tracing each batch size separately"


@pytest.mark.slow
@small
def test_where_each_batch_size_is_traced_by_itself_the_curve_has_those_that_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workloads, "trace_every_batch_size", not_alike)
    request = AnalysisRequest(
        small_workload("bert"), gpu="t4", batch_multiple=1024, memory_limit_bytes=2**30
    )
    found = analyze_predicted(request, lambda _: None)
    tried = {trial.batch_size for trial in found.trials}
    assert found.curve
    assert {point.batch_size for point in found.curve} <= tried


def not_alike(*_: object) -> None:
    raise NotAffine("not alike")


class Block(nn.Module):
    def __init__(self, number: int, width: int = 4, kind: str = "full") -> None:
        super().__init__()
        self.number, self.kind, self.drop = number, kind, 0.1 * (number + 1)
        self.linear = nn.Linear(width, width, device="meta")


def model_of(*blocks: Block) -> nn.Module:
    return nn.ModuleDict({"blocks": nn.ModuleList(blocks)})


@pytest.mark.parametrize(
    ("blocks", "run"),
    [
        ([Block(n) for n in range(7)], Run("blocks", 7, 0, 1, 7, (".number",))),
        ([Block(n, 8 if n == 0 else 4) for n in range(7)], Run("blocks", 7, 1, 1, 6, (".number",))),
        (
            [Block(n, kind="full" if n % 3 == 2 else "window") for n in range(19)],
            Run("blocks", 19, 0, 3, 6, (".number",)),
        ),
        ([Block(n) for n in range(5)], None),
        ([Block(n, 4 + n) for n in range(12)], None),
    ],
    ids=["alike", "but-the-first", "in-threes", "too-few", "none-alike"],
)
def test_runs_are_blocks_that_differ_by_nothing_but_their_number(
    blocks: list[Block], run: Run | None
) -> None:
    assert runs_of(model_of(*blocks)) == ([] if run is None else [run])


def test_a_shorter_copy_leaves_the_model_as_it_is() -> None:
    model = model_of(*(Block(number) for number in range(9)))
    [run] = runs_of(model)
    shorter = with_fewer(model, [run], 2, [5])
    assert [block.number for block in shorter.get_submodule("blocks").children()] == [0, 1, 2, 3, 4]
    assert len(list(model.get_submodule("blocks").children())) == 9
    with torch.device("meta"):
        assert next(shorter.parameters()) is not next(model.parameters())


def test_blocks_named_by_number_are_of_another_kind_and_named_anew() -> None:
    model = model_of(*(Block(number) for number in range(12)))
    vars(model)["wide"] = [0, 8, 11]
    [run] = runs_of(model)
    assert (run.start, run.blocks) == (1, 7)
    assert vars(with_fewer(model, [run], 1, [3]))["wide"] == [0, 4, 7]
    assert vars(model)["wide"] == [0, 8, 11]


@small
@pytest.mark.slow
def test_the_blocks_of_an_image_encoder_that_attend_to_all_of_it_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vision = {"depth": 24, "fullatt_block_indexes": [20], "window_size": 4 * 14}
    small = Preset.config

    def config(preset: Preset) -> dict[str, Any]:
        whole = small(preset)
        return whole | {"vision_config": whole["vision_config"] | vision}

    monkeypatch.setattr(Preset, "config", config)
    workload = small_workload("qwen2.5-vl-7b", image_size=112)
    assert assert_same_as_whole(workload).startswith("with ")


def test_what_is_freed_is_counted_from_the_end_where_more_blocks_count_as_many() -> None:
    def freed(*places: tuple[int, int]) -> list[Event]:
        return [Event(FREE, 0, ("hidden states",), -1, -1, *place) for place in places]

    other = Event(ALLOCATE, 0, ("logits",), -1, -1)
    shallow = [*freed((0, 1), (0, 0)), other, *freed((1, 0), (0, 0))]
    deeper = [*freed((0, 2), (0, 1), (0, 0)), other, *freed((2, 0), (1, 0), (0, 0))]
    oldest, newest = Rank(0, False), Rank(0, True)
    assert ranks_of([shallow, deeper], [[0, 1, 3, 4, 5]]) == [
        [oldest, oldest, None, newest, newest],
        [oldest, oldest, oldest, None, newest, newest, newest],
    ]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(10, 19), max_size=5), min_size=4, max_size=4),
)
def test_what_was_added_is_found(parts: list[list[int]], added: list[list[int]]) -> None:
    short = [item for part in parts for item in part]
    long = [item for part, more in zip(parts, added, strict=False) for item in (*more, *part)]
    places = aligned([[*short]], [[*long]])
    assert [long[place] for place in places] == short
    gaps = between(places, len(long))
    assert [long[place] for gap in gaps.values() for place in gap] == [
        item for item in long if item > 9
    ]


def test_more_of_two_kinds_is_added_to_each() -> None:
    assert aligned([[*"aabbc"]], [[*"aaabbbc"]]) == [0, 1, 3, 4, 6]


@pytest.mark.parametrize(
    ("short", "long"), [([[1, 2]], [[1, 3]]), ([[1]], [[1], [2]]), ([[1, 2]], [[1]])]
)
def test_what_is_not_there_any_more_is_refused(
    short: list[list[int]], long: list[list[int]]
) -> None:
    with pytest.raises(NotRepeating):
        aligned([[*one] for one in short], [[*one] for one in long])
