"""How fast text is generated: against published speeds, and by what decides."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.choices import Precision
from engine.gpus import GPUS
from engine.interface.texts import Texts
from engine.interface.workload import Workload
from engine.prediction.texts.decoding import SPEED_RANGE, GenerationSpeed, generation_speed
from engine.prediction.texts.generation import generation_traces
from engine.tests.shared import small_workload
from engine.tracing.lowering import cuda_behaviour


def speed_of(workload: Workload, gpu: str, texts: Texts, batch_size: int) -> GenerationSpeed:
    behaviour = cuda_behaviour(GPUS[gpu].compute_capability)
    trace = generation_traces(workload, texts, behaviour, alone=True).at(batch_size)
    return generation_speed(trace, texts, GPUS[gpu], workload.precision)


def llama_2(width: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 32_000,
        "max_position_embeddings": 4096,
    }


LLAMA_2_7B, LLAMA_2_13B = llama_2(4096, 11_008, 32, 32), llama_2(5120, 13_824, 40, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu", "texts", "batch_size", "tokens_per_second"),
    [
        # dystrio/Mistral-7B-v0.1-sculpt-conservative on the Hub: torch 2.10, transformers 5.2
        ("mistral-7b", "a100-80gb", Texts(128, 128), 1, 30.9),
        # InternLM/lmdeploy#210: 34 ms a token
        (LLAMA_2_7B, "a10", Texts(20, 267), 1, 1 / 0.034),
        # Deci/DeciLM-6b on the Hub, hf_benchmark_example.py
        (LLAMA_2_7B, "a10", Texts(512, 512), 8, 136),
        # foundation-model-stack#69: 35.71 ms a token
        (LLAMA_2_13B, "a100-80gb", Texts(20, 25), 1, 1 / 0.03571),
    ],
    ids=str,
)
def test_published_speeds_lie_within_the_range(
    model: Any, gpu: str, texts: Texts, batch_size: int, tokens_per_second: float
) -> None:
    named = model if isinstance(model, str) else "own-config"
    config = None if named == model else model
    task = "causal-language-modelling"
    workload = Workload(named, config=config, task=task, precision="bf16-true")  # type: ignore[arg-type]
    found = speed_of(workload, gpu, texts, batch_size).tokens_per_second
    assert SPEED_RANGE.low <= tokens_per_second / found <= SPEED_RANGE.high


@pytest.mark.usefixtures("small_models")
class TestSmall:
    @pytest.mark.longer
    def test_a_small_model_waits_for_its_host_at_any_batch(self) -> None:
        workload = small_workload("llama-3.2-1b", precision="bf16-true")
        few, many = (speed_of(workload, "h100", Texts(16, 16), size) for size in (1, 64))
        assert few.waits_for_host
        assert many.token_seconds == pytest.approx(few.token_seconds)
        assert many.tokens_per_second == pytest.approx(64 * few.tokens_per_second)

    @pytest.mark.longer
    def test_a_longer_cache_takes_longer_to_read(self) -> None:
        workload = small_workload("llama-3.2-1b", precision="bf16-true")
        short, long = (speed_of(workload, "t4", Texts(prompt, 16), 4000) for prompt in (64, 640))
        assert long.token_seconds > 2 * short.token_seconds

    def test_one_new_token_needs_the_prompts_alone(self) -> None:
        workload = small_workload("gpt2", precision=Precision.FP32)
        found = speed_of(workload, "t4", Texts(64, 1), 8)
        assert found.token_seconds == 0
        assert found.tokens_per_second == pytest.approx(8 / found.prompt_seconds)
