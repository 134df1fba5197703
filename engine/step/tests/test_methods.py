"""Learning from answers: its steps on the CPU, its log-probabilities, what it is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import kl_div

from engine.answer.training_config import training_configs
from engine.core.errors import InvalidInput
from engine.interface.tokens import tokens_of
from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.models.presets import Preset
from engine.prediction.rollouts import rollout_caveats
from engine.step import scoring
from engine.step.divergence import divergences
from engine.step.scoring import log_probabilities
from engine.tests.shared import slow, small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace
from engine.tracing.lowering import CudaBehaviour
from engine.tracing.tests.lowered import A10

pytestmark = pytest.mark.usefixtures("small_models", "small_tiles")

BATCH_SIZE = 3


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "TILE_TOKENS", 16)
    monkeypatch.setattr(scoring, "TILE_WORDS", 300)


def predicted_and_measured(workload: Workload) -> tuple[int, int]:
    trial = cpu.run_trial(TrialOrder(workload, BATCH_SIZE))
    assert trial.peak_allocated_bytes is not None
    return trace(workload, BATCH_SIZE, None).peak_by_category()[0], trial.peak_allocated_bytes


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("llama-3.2-1b", {"method": "dpo"}),
        slow("llama-3.2-1b", {"method": "dpo", "precision": "bf16-true", "completion_length": 12}),
        slow("llama-3.2-1b", {"method": "dpo", "lora_rank": 4, "precision": "bf16-mixed"}),
        slow("llama-3.2-1b", {"method": "dpo", "lora_rank": 4, "gradient_checkpointing": True}),
        slow("llama-3.2-1b", {"method": "dpo", "precomputed_reference": True}),
        slow("mistral-7b", {"method": "kto", "precision": "bf16-mixed"}),
        slow("mistral-7b", {"method": "kto", "precomputed_reference": True}),
        ("llama-3.2-1b", {"method": "grpo", "completion_length": 20}),
        slow("llama-3.2-1b", {"method": "grpo", "rollout": "server", "optimizer": "sgd"}),
        slow("llama-3.2-1b", {"method": "grpo", "steps_per_generation": 40, "optimizer": "sgd"}),
        slow("gpt2", {"method": "grpo", "kl_reference": True, "precision": "bf16-true"}),
        slow(
            "llama-3.2-1b",
            {
                "method": "grpo",
                "kl_reference": True,
                "lora_rank": 4,
                "precision": "bf16-mixed",
                "gradient_accumulation": 2,
                "steps_per_generation": 2,
                "gradient_checkpointing": True,
            },
        ),
        slow("qwen3-0.6b", {"method": "distillation", "teacher": "qwen3-8b"}),
        slow(
            "qwen3-0.6b",
            {
                "method": "distillation",
                "teacher": "qwen3-8b",
                "precision": "bf16-mixed",
                "lora_rank": 4,
                "completion_length": 9,
            },
        ),
        pytest.param("llama-3.2-1b", {"method": "ppo"}, marks=pytest.mark.slow),
        pytest.param(
            "llama-3.2-1b",
            {
                "method": "ppo",
                "completion_length": 12,
                "precision": "bf16-true",
                "steps_per_generation": 3,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param("gpt2", {"method": "ppo", "precision": "bf16-mixed"}, marks=pytest.mark.slow),
        pytest.param(
            "qwen3-0.6b",
            {
                "method": "ppo",
                "lora_rank": 4,
                "reward_model": "qwen3-8b",
                "gradient_checkpointing": True,
                "gradient_accumulation": 2,
                "steps_per_generation": 2,
            },
            marks=pytest.mark.slow,
        ),
        ("gpt2", {"method": "orpo"}),
        slow("llama-3.2-1b", {"method": "orpo", "precision": "bf16-mixed", "lora_rank": 4}),
    ],
    ids=str,
)
def test_the_peak_is_equal_to_the_byte(model: str, fields: dict[str, Any]) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, **fields))
    assert predicted == measured


def test_a_tiled_score_is_that_of_all_logits() -> None:
    hidden, weight = torch.rand(50, 8), torch.rand(1000, 8)
    targets = torch.arange(50) * 20
    given = [tensor.clone().requires_grad_() for tensor in (hidden, weight, hidden, weight)]
    tiled = log_probabilities(given[0], given[1], targets)
    whole = (given[2] @ given[3].T).log_softmax(-1).gather(1, targets.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(tiled, whole)
    for scores in (tiled, whole):
        (scores * torch.linspace(0, 1, 50)).sum().backward()
    torch.testing.assert_close(given[0].grad, given[2].grad)
    torch.testing.assert_close(given[1].grad, given[3].grad)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", slow("kto"), slow("grpo")])
def test_two_batch_sizes_give_every_other(method: str) -> None:
    workload = small_workload("llama-3.2-1b", method=method)
    traces = trace_every_batch_size(workload, None)
    assert traces.at(7).peak_by_category() == trace(workload, 7, None).peak_by_category()


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [None, A10])
def test_text_by_text_the_steps_of_orpo_grow_with_the_batch(
    behaviour: CudaBehaviour | None,
) -> None:
    workload = small_workload("gpt2", method="orpo")
    traces = trace_every_batch_size(workload, behaviour)
    for batch_size in (2, 9):
        found, expected = traces.at(batch_size), trace(workload, batch_size, behaviour)
        assert found == expected
        assert found.operations == expected.operations


@pytest.mark.slow
def test_a_reference_is_a_second_copy_unless_the_adapters_can_be_switched_off() -> None:
    def parameter_bytes(**fields: Any) -> int:
        workload = small_workload("llama-3.2-1b", **fields)
        return trace(workload, 2, None).peak_by_category()[1]["parameters"]

    alone = parameter_bytes()
    assert parameter_bytes(method="dpo") == 2 * alone
    assert parameter_bytes(method="dpo", precomputed_reference=True) == alone
    assert parameter_bytes(method="orpo") == alone
    adapted = parameter_bytes(lora_rank=4)
    assert parameter_bytes(lora_rank=4, method="dpo") == adapted


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"method": "dpo", "task": "sequence-classification"}, "method"),
        ({"completion_length": 8}, "completion_length"),
        ({"method": "dpo", "completion_length": 32}, "completion_length"),
        ({"method": "orpo", "precomputed_reference": True}, "precomputed_reference"),
        ({"method": "kto", "compile": True}, "compile"),
        ({"method": "distillation"}, "teacher"),
        ({"method": "distillation", "teacher": "qwen9"}, "teacher"),
        ({"teacher": "gpt2"}, "teacher"),
        ({"method": "grpo", "gradient_accumulation": 2}, "steps_per_generation"),
        ({"rollout": "server"}, "rollout"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidInput) as error:
        small_workload("gpt2", **fields)
    assert list(error.value.fields) == [wrong]


def test_the_tokens_of_a_pair_are_those_of_both_answers() -> None:
    tokens = tokens_of(small_workload("gpt2", method="dpo"))
    assert tokens is not None
    assert tokens.per_sample == 64


def test_the_lines_to_paste_are_those_of_trl() -> None:
    workload = small_workload("llama-3.2-1b", method="dpo", precision="bf16-mixed")
    (config,) = training_configs(workload, 4)
    assert config.name == "TRL"
    assert "from trl import DPOConfig, DPOTrainer\n" in config.text
    assert "    per_device_train_batch_size=4,\n" in config.text
    assert "    max_length=32,\n" in config.text
    compile(config.text, "config", "exec")


def test_a_teacher_needs_the_vocabulary_of_its_student(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Preset.config
    wide = {"qwen3-8b": {"vocab_size": 2000}}
    monkeypatch.setattr(Preset, "config", lambda one: whole(one) | wide.get(one.name, {}))
    workload = small_workload("qwen3-0.6b", method="distillation", teacher="qwen3-8b")
    with pytest.raises(InvalidInput, match="2,000 words, not 1,000"):
        trace(workload, 2, None)


def test_divergences_are_those_of_all_logits() -> None:
    hidden, weight = torch.rand(70, 8), torch.rand(1000, 8)
    others, other_weight = torch.rand(70, 4), torch.rand(1000, 4)
    given = [tensor.clone().requires_grad_() for tensor in (hidden, weight, hidden, weight)]
    tiled = divergences(given[0], given[1], others, other_weight)
    student = (given[2] @ given[3].T).log_softmax(-1)
    teacher = (others @ other_weight.T).log_softmax(-1)
    whole = kl_div(student, teacher, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(tiled, whole)
    for apart in (tiled, whole):
        (apart * torch.linspace(0, 1, 70)).sum().backward()
    torch.testing.assert_close(given[0].grad, given[2].grad)
    torch.testing.assert_close(given[1].grad, given[3].grad)


@pytest.mark.longer
@pytest.mark.parametrize(("batches", "decides"), [(1, "the update"), slow(400, "generation")])
def test_the_phase_that_decides_is_told(batches: int, decides: str) -> None:
    workload = small_workload(
        "llama-3.2-1b", method="grpo", completion_length=20, steps_per_generation=batches
    )
    (told,) = rollout_caveats(workload, trace(workload, 2, None))
    assert told.startswith(f"Of generation and update, {decides} needs more memory")
