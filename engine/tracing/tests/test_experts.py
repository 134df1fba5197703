"""Mixtures of experts need the same memory however their tokens are routed."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.models.tasks import Task
from engine.prediction.predicted_analysis import analyze_predicted
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Trace

pytestmark = pytest.mark.torch

BATCH_SIZE = 3
SMALL = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "num_experts_per_tok": 2,
}
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8},
    "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 32},
    "deepseek_v3": {
        "n_routed_experts": 8,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    },
    "gpt_oss": {"num_local_experts": 8, "sliding_window": 16},
}


def mixture(model_type: str, **fields: Any) -> Workload:
    return Workload(
        "small",
        config=SMALL | MIXTURES[model_type] | {"model_type": model_type},
        task=Task.CAUSAL_LANGUAGE_MODELLING,
        sequence_length=32,
        **fields,
    )


def real_steps(workload: Workload, *, to_the_same: bool) -> tuple[Trace, int]:
    """Two real steps on the CPU, and how many experts had no token in some product, at most.

    Args:
        workload: A mixture of experts.
        to_the_same: Whether all tokens go to the same experts; else a random router shares them.
    """
    model = build_model(workload)
    if to_the_same:
        for name, parameter in model.named_parameters():
            if name.endswith(("gate.weight", "router.weight")):
                parameter.data.zero_()  # all experts score alike, so all tokens take the same
    idle = [0]
    count = torch.histc

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        tokens = count(*args, **options)
        with torch.utils._python_dispatch._disable_current_modes():
            idle.append(int((tokens == 0).sum()))
        return tokens

    training = prepare(workload, model)
    recorder = MemoryRecorder(training, BATCH_SIZE)
    batch = make_batch(workload, BATCH_SIZE)
    with patch("torch.histc", counted):
        for _ in range(2):
            recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace, max(idle)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model_type", "precision"),
    [
        pytest.param(model_type, precision, marks=() if fast else pytest.mark.slow)
        for model_type in MIXTURES
        for precision in ("fp32", "bf16-true")
        for fast in [(model_type, precision) in (("mixtral", "fp32"),)]
    ],
)
def test_memory_does_not_depend_on_which_expert_gets_which_token(
    model_type: str, precision: str
) -> None:
    workload = mixture(model_type, precision=precision)
    shared, idle = real_steps(workload, to_the_same=False)
    skewed, most_idle = real_steps(workload, to_the_same=True)
    assert idle < most_idle == 6  # two of eight get all tokens
    assert (skewed.events, skewed.sizes) == (shared.events, shared.sizes)
    assert trace(workload, BATCH_SIZE, None).peak_by_category() == skewed.peak_by_category()


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_an_answer_says_that_routing_changes_no_memory_where_there_are_experts() -> None:
    def caveats(workload: Workload) -> str:
        request = AnalysisRequest(workload, gpu="t4", batch_multiple=256, memory_limit_bytes=2**28)
        return " ".join(analyze_predicted(request, lambda _: None).caveats)

    said = "Memory is the same however tokens are routed to experts"
    assert said in caveats(mixture("mixtral"))
    assert said not in caveats(small_workload("gpt2"))


@pytest.mark.usefixtures("small_models")
def test_lora_on_all_linear_layers_leaves_a_router_that_is_one_as_it_is() -> None:
    model = build_model(small_workload("llama-4-scout", lora_rank=4))
    adapted = {name for name, _ in model.named_modules() if name.endswith("lora_A")}
    assert any("q_proj" in name for name in adapted)
    assert not any("router" in name for name in adapted)


@pytest.mark.longer
@pytest.mark.parametrize("capability", [slow(7.5), 9.0])
def test_experts_multiply_as_on_the_gpu(capability: float) -> None:
    """Without a grouped product each expert multiplies by itself, and memory is the same."""
    workload = mixture("mixtral", precision="bf16-true")
    traced = trace(workload, BATCH_SIZE, cuda_behaviour(capability))
    grouped = sum(one.name == "aten._grouped_mm" for one in traced.operations)
    assert (grouped > 0) == (capability == 9.0)
    other = trace(workload, BATCH_SIZE, cuda_behaviour(8.0))
    experts = {
        name: [
            size
            for size, module in zip(one.sizes, one.modules, strict=True)
            if module.endswith("experts")
        ]
        for name, one in (("here", traced), ("other", other))
    }
    assert sum(experts["here"]) == pytest.approx(sum(experts["other"]), rel=0.05)


@pytest.mark.parametrize(
    ("release", "grouped"), [("2.7.1", ()), ("2.8.0", (9.0,)), ("2.13.0", (8.6, 9.0))]
)
def test_grouped_products_are_there_by_release_and_gpu(
    release: str, grouped: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", release)
    if release == "2.7.1":
        monkeypatch.delattr(torch, "_grouped_mm")
    found = tuple(one for one in (7.5, 8.6, 9.0) if cuda_behaviour(one).multiplies_in_groups())
    assert found == grouped
