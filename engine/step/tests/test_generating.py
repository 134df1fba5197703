"""Generating text, against ``generate`` of transformers on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationMixin

from engine.core.choices import CacheFormat, Goal
from engine.core.errors import InvalidInput
from engine.core.optimizers import Optimizer
from engine.interface.request import AnalysisRequest
from engine.interface.texts import SUGGESTED, Texts, refused, unsuited
from engine.interface.workload import Workload
from engine.models.tasks import Task
from engine.prediction.memory.growing import at_more_lengths
from engine.prediction.texts.generation import generating_workload, generation_traces
from engine.prediction.texts.text_analyses import analyze_texts
from engine.step.batches import Batch, make_batch
from engine.step.caches import Caches
from engine.step.generating import Generation, cache_name
from engine.step.training import TrainingState, build_model, prepare
from engine.tests.shared import slow, small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import ENCODING, Category

pytestmark = pytest.mark.usefixtures("small_models")

BATCH_SIZE = 3
VISION = (
    "gemma-3-4b", "gemma-4-e2b", "llama-3.2-11b-vision", "llama-4-scout", "llava-1.5-7b",
    "paligemma-2-3b", "qwen2.5-vl-3b", "qwen3-vl-4b", "smolvlm2-500m",
)  # fmt: skip
A100 = cuda_behaviour(8.0)


def training_of(workload: Workload) -> TrainingState:
    model: Any = build_model(workload).eval()
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    return prepare(workload, model)


def batch_of(workload: Workload) -> Batch:
    """Inputs: texts of one length, or sources of an encoder, which are padded."""
    batch = make_batch(workload, BATCH_SIZE)
    if workload.task is not Task.SEQUENCE_TO_SEQUENCE:
        batch.pop("attention_mask", None)
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def peak_of_generate(workload: Workload, texts: Texts) -> int:
    """Arguments of transformers' own function."""
    training = training_of(workload)
    model: Any = training.model
    recorder = MemoryRecorder(training, BATCH_SIZE, counted=torch.is_floating_point)
    batch = batch_of(workload)
    options: dict[str, Any] = {"max_new_tokens": texts.new_tokens, "do_sample": True, "top_k": 0}
    if texts.num_beams > 1:
        options |= {"do_sample": False, "num_beams": texts.num_beams}
    if texts.cache_format is CacheFormat.STATIC:
        options |= {"cache_implementation": "static", "disable_compile": True}

    def generate() -> None:
        with training.forward_context():
            inputs = {name: tensor.clone() for name, tensor in batch.items()}  # to the device
            # Whisper's own generate reads long recordings piece by piece.
            of_model = GenerationMixin if "input_features" in inputs else type(model)
            of_model.generate(model, **inputs, use_cache=True, pad_token_id=0, **options)

    recorder.record_step(generate)
    return recorder.trace.peak_by_category()[0]


def peak_of_ours(workload: Workload, texts: Texts, counted: Any = None) -> int:
    training = training_of(workload)
    recorder = MemoryRecorder(training, BATCH_SIZE, counted=counted)
    batch = make_batch(workload, BATCH_SIZE)
    caches = Caches(texts.cache_format)
    generation = Generation(training, batch, texts.new_tokens, caches, texts.num_beams)
    for move in generation.moves:
        recorder.record_step(move)
    return recorder.trace.peak_by_category()[0]


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "fields", "texts"),
    [
        slow("llama-3.2-1b", {}, Texts(16, 1)),
        slow("llama-3.2-1b", {}, Texts(16, 60)),
        slow("llama-3.2-1b", {}, Texts(60, 16)),
        slow("llama-3.2-1b", {"precision": "bf16-true"}, Texts(16, 60)),
        slow("llama-3.2-1b", {"lora_rank": 4}, Texts(16, 60)),
        slow("llama-3.2-1b", {}, Texts(16, 20, cache_format=CacheFormat.STATIC)),
        slow("gpt2", {}, Texts(16, 20)),
        slow("gpt2", {}, Texts(16, 60)),
        slow("gemma-3-1b", {}, Texts(8, 100)),
        slow("gemma-3-1b", {}, Texts(100, 8)),
        slow("qwen3-0.6b", {}, Texts(16, 60)),
        # The encoder's scores decide, then the cache.
        ("t5-small", {}, Texts(200, 8)),
        slow("t5-small", {}, Texts(16, 60)),
        slow("t5-small", {"precision": "bf16-true", "lora_rank": 4}, Texts(16, 60)),
        slow("t5-small", {}, Texts(16, 60, 4)),
        slow("t5-small", {"lora_rank": 4}, Texts(200, 8, 4)),
        slow("llama-3.2-1b", {}, Texts(16, 60, 3)),
        slow("llama-3.2-1b", {}, Texts(16, 60, 3, CacheFormat.STATIC)),
        ("gpt2", {}, Texts(60, 8, 3)),
        slow("whisper", {}, Texts(16, 60, 2)),
        slow("bart-large", {}, Texts(16, 60)),
        slow("bart-large", {}, Texts(16, 60, cache_format=CacheFormat.STATIC)),
        slow("whisper", {}, Texts(16, 60)),
        *(
            slow(model, {}, Texts(32, new))
            for model in VISION
            for new in (4, 60)
            if (model, new) != ("qwen2.5-vl-3b", 4)
        ),
        slow("qwen2.5-vl-3b", {}, Texts(32, 4)),
    ],
    ids=str,
)
def test_the_peak_is_that_of_generate(model: str, fields: dict[str, Any], texts: Texts) -> None:
    workload = generating_workload(small_workload(model, **fields), texts)
    measured = peak_of_generate(workload, texts)
    assert peak_of_ours(workload, texts, torch.is_floating_point) == measured
    traced = generation_traces(workload, texts, None).at(BATCH_SIZE)
    assert traced.peak_by_category()[0] == peak_of_ours(workload, texts)


@pytest.mark.longer
@pytest.mark.parametrize("cache_format", [CacheFormat.DYNAMIC, slow(CacheFormat.STATIC)])
def test_the_cache_has_keys_and_values_of_each_group_of_heads(cache_format: CacheFormat) -> None:
    workload = small_workload("llama-3.2-1b", precision="bf16-true")
    config = workload.preset.config()
    texts = Texts(16, 1984, cache_format=cache_format)
    _, breakdown = generation_traces(workload, texts, A100).at(8).peak_by_category()
    width = config["hidden_size"] // config["num_attention_heads"]
    token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * width
    assert breakdown[Category.CACHE] == pytest.approx(8 * 1999 * token, rel=0.3)
    assert breakdown[Category.CACHE] >= 8 * 1998 * token


@pytest.mark.slow
def test_a_sliding_window_bounds_the_cache() -> None:
    workload = small_workload("gemma-3-1b")
    short, long = (
        generation_traces(workload, Texts(16, new), A100).at(2).peak_by_category()[1]["cache"]
        for new in (100, 200)
    )
    assert short < long < 1.9 * short  # one of its two layers has a window


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, slow(3)])
def test_every_batch_size_is_what_a_trace_of_it_has(num_beams: int) -> None:
    workload, texts = small_workload("llama-3.2-1b"), Texts(32, 32, num_beams)
    traces = generation_traces(workload, texts, A100)
    alone = [generation_traces(workload, texts, A100).at(size) for size in (1, 2)]
    assert [traces.at(size).peak_by_category() for size in (1, 2)] == [
        one.peak_by_category() for one in alone
    ]
    assert traces.at(64).peak_by_category()[0] > traces.at(8).peak_by_category()[0]


@pytest.mark.parametrize(
    ("model", "texts", "field"),
    [
        ("bert", Texts(16, 16), "task"),
        ("resnet", Texts(16, 16), "model"),
        ("gpt2", Texts(1000, 25), "prompt_length"),
        ("whisper", Texts(1024, 449), "new_tokens"),
        ("bart-large", Texts(1025, 16), "prompt_length"),
    ],
)
def test_what_cannot_generate_is_refused(model: str, texts: Texts, field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        generation_traces(small_workload(model), texts, A100)
    assert list(error.value.fields) == [field]
    given = {"model": model, "goal": "generation", "gpu": "a10", "current_batch_size": 1}
    lengths = {"prompt_length": texts.prompt_length, "new_tokens": texts.new_tokens}
    with pytest.raises(InvalidInput) as at_once:  # before anything runs
        AnalysisRequest.parse(given | lengths)
    assert at_once.value.fields == error.value.fields


def test_another_task_of_the_model_is_named_where_one_generates() -> None:
    workload = small_workload("gpt2", task="sequence-classification")
    (told,) = refused(workload, Texts()).values()
    assert "writes no text when trained for sequence classification" in told
    assert "choose the task causal-language-modelling, or another model, such as llama" in told


@pytest.mark.parametrize("goal", SUGGESTED)
def test_the_models_that_messages_name_suit_the_goal(goal: Goal) -> None:
    assert not any(unsuited(Workload(name), goal) for name in SUGGESTED[goal])


@pytest.mark.parametrize(
    ("model", "goal"),
    [("bert", Goal.GENERATION), ("distilbert", Goal.GENERATION), ("resnet", Goal.LENGTH),
     ("sdxl", Goal.LENGTH)],
)  # fmt: skip
def test_a_model_without_an_answer_to_the_goal_is_refused_before_anything_runs(
    model: str, goal: Goal
) -> None:
    given = {"model": model, "goal": goal, "gpu": "a10", "current_batch_size": 1}
    with pytest.raises(InvalidInput) as error:
        AnalysisRequest.parse(given)
    assert all(name in str(error.value) for name in SUGGESTED[goal])


def test_a_wrong_setting_is_not_followed_by_what_a_stand_in_cannot_generate() -> None:
    given = {"model": "gpt2", "goal": "generation", "gpu": "a10", "current_batch_size": 1}
    with pytest.raises(InvalidInput) as error:
        AnalysisRequest.parse(given | {"adapter": "dora"})
    assert list(error.value.fields) == ["adapter"]


@pytest.mark.longer
def test_quantized_weights_generate_without_adapters() -> None:
    given = {"model": "llama-3.2-1b", "gpu": "a10", "current_batch_size": 1}
    asked = given | {"quantization": "nf4"}
    request = AnalysisRequest.parse(asked | {"goal": "generation"})
    assert request.workload.optimizer is Optimizer.NONE
    assert AnalysisRequest.parse(request.to_dict()) == request

    whole, packed = (
        generation_traces(
            small_workload("gpt2", quantization=kept, optimizer="none"), Texts(8, 8), A100
        )
        .at(1)
        .peak_by_category()[1][Category.PARAMETERS]
        for kept in ("none", "nf4")
    )
    assert packed < whole
    with pytest.raises(InvalidInput, match="set a LoRA rank"):
        AnalysisRequest.parse(asked | {"goal": "batch"})


@pytest.mark.slow
def test_an_encoder_reads_once_and_only_the_decoders_own_cache_grows() -> None:
    traced = generation_traces(small_workload("t5-small"), Texts(64, 60), A100, alone=True).at(2000)
    phases = [name for _, name in traced.phases]
    assert phases.count(ENCODING) == 1
    assert at_more_lengths(traced).peak_by_category() == traced.peak_by_category()
    assert len(at_more_lengths(traced).events) > len(traced.events)


@pytest.mark.slow
def test_sound_and_images_are_counted_apart_from_the_prompt() -> None:
    request = AnalysisRequest.parse(
        {"model": "whisper", "goal": "generation", "gpu": "a10", "current_batch_size": 2}
    )
    heard = analyze_texts(request, lambda _: None)
    assert "30 s of sound and 256 new ones each" in heard.decision
    assert heard.generation is not None
    assert heard.generation.longest_length == 448
    assert any("no prompt beside what it encodes" in caveat for caveat in heard.caveats)


def test_a_cache_is_handed_over_by_the_name_that_the_model_takes() -> None:
    class Before:
        def forward(self, input_ids: object, past_key_values: object = None) -> None: ...

    class Renamed:
        def forward(self, input_ids: object, cache: object = None) -> None: ...

    assert cache_name(Before()) == "past_key_values"
    assert cache_name(Renamed()) == "cache"
