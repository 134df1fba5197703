"""PPO: its log-probabilities, its four models, and what it keeps from phase to phase."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.core.errors import InvalidInput
from engine.models.presets import Preset
from engine.prediction.rollouts import rollout_caveats
from engine.step.ppo import ActorCritic
from engine.step.text_scores import text_scores
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace

pytestmark = pytest.mark.usefixtures("small_models")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_of_texts_are_log_probabilities(dtype: torch.dtype) -> None:
    given = torch.randn(3, 5, 70).to(dtype)
    targets = torch.arange(15).view(3, 5) * 4
    logits = [given.clone().requires_grad_() for _ in range(2)]
    ours = text_scores(logits[0], targets)
    plain = logits[1].log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(ours, plain)
    for scores in (ours, plain):
        (scores * torch.linspace(0, 1, 15, dtype=dtype).view(3, 5)).sum().backward()
    torch.testing.assert_close(logits[0].grad, logits[1].grad, atol=0.01, rtol=0.02)


def test_policy_and_value_model_learn_and_the_others_are_frozen() -> None:
    workload = small_workload("llama-3.2-1b", method="ppo")
    model = build_model(workload)
    assert isinstance(model, ActorCritic)
    trained = {
        name.partition(".")[0] for name, one in model.named_parameters() if one.requires_grad
    }
    assert trained == {"policy", "value_model"}
    assert model.reference is not None
    adapted = build_model(small_workload("llama-3.2-1b", method="ppo", lora_rank=4))
    assert isinstance(adapted, ActorCritic)
    assert adapted.reference is None


def test_a_reward_model_with_another_vocabulary_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Preset.config

    def config(preset: Preset) -> dict[str, Any]:
        other = {"vocab_size": 500} if preset.name == "qwen3-8b" else {}
        return small(preset) | other

    monkeypatch.setattr(Preset, "config", config)
    workload = small_workload("llama-3.2-1b", method="ppo", reward_model="qwen3-8b")
    with pytest.raises(InvalidInput, match="its vocabulary has 500 words, not 1,000"):
        build_model(workload)


@pytest.mark.slow
def test_every_batch_size_is_what_a_trace_of_it_has() -> None:
    workload = small_workload("llama-3.2-1b", method="ppo", completion_length=20)
    traces = trace_every_batch_size(workload, None)
    assert traces.at(5).peak_by_category() == trace(workload, 5, None).peak_by_category()


@pytest.mark.slow
@pytest.mark.parametrize(("batches", "decides"), [(1, "the update"), (60, "scoring")])
def test_the_phase_that_decides_is_told(batches: int, decides: str) -> None:
    workload = small_workload(
        "llama-3.2-1b", method="ppo", completion_length=20, steps_per_generation=batches
    )
    (told,) = rollout_caveats(workload, trace(workload, 2, None))
    assert told.startswith(f"Of generation, scoring and update, {decides} needs more memory")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"method": "grpo", "reward_model": "qwen3-0.6b"}, "reward_model"),
        ({"method": "ppo", "reward_model": "no-such-preset"}, "reward_model"),
        ({"method": "ppo", "rollout": "server"}, "rollout"),
        ({"method": "ppo", "precomputed_reference": True}, "precomputed_reference"),
        ({"method": "ppo", "gradient_accumulation": 4}, "steps_per_generation"),
        ({"method": "ppo", "precision": "fp16-mixed"}, "precision"),
    ],
    ids=str,
)
def test_what_does_not_combine_is_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        small_workload("llama-3.2-1b", **fields)
    assert list(error.value.fields) == [field]
