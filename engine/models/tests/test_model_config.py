"""Untrusted configs are refused with a reason or predicted, in bounded time and memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from transformers import AutoConfig

from benchmarks.coverage.small_configs import small_config
from engine.cli.main import main
from engine.core.errors import EngineError, InvalidInput
from engine.hub import resolve
from engine.interface.workload import OWN_CONFIG, Workload
from engine.models.config import describe, parse_config
from engine.models.presets import PRESETS
from engine.models.published import PUBLISHED_FORMAT
from engine.models.tasks import Kind, Task
from engine.step import building
from engine.step.building import blaming_the_config, check_given, code_caveats, new_model
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

BERT = PRESETS["bert"].config()
LLAMA = PRESETS["llama-3.2-1b"].config()
VIT = PRESETS["vit-b"].config()
CLIP = PRESETS["clip"].config()


def cyclic() -> dict[str, Any]:
    config = dict(BERT)
    config["itself"] = config
    return config


def nested(depth: int) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    for _ in range(depth):
        inside = {"a": inside}
    return inside


WRONG: list[tuple[object, str]] = [
    ("{", "not JSON"),
    (" ", "not JSON"),
    (CLIP | {"text_config": 1}, "text_config is not a JSON object"),
    (BERT | {"max_position_embeddings": [512]}, "is a list"),
    (b"\xff\xfe{}", "not JSON"),
    ("[" * 100_000, "too deep"),
    ("[]", "not a JSON object"),
    ("null", "not a JSON object"),
    (7, "not a JSON object"),
    (object(), "not JSON"),
    ({}, "model_type is missing"),
    (cyclic(), "not JSON"),
    (BERT | {"extra": nested(20)}, "too deep"),
    (BERT | {"extra": nested(100_000)}, "too deep"),
    (BERT | {"extra": "x" * 2**20}, "larger than 1 MiB"),
    (BERT | {"extra": [0] * 5_000}, "more than 5,000 values"),
    (BERT | {f"extra_{number}": 0 for number in range(50_000)}, "more than 5,000 values"),
    (BERT | {"extra": [[[]] * 80] * 80}, "more than 5,000 values"),
    (BERT | {"extra": "x" * 2_001}, "a text of more than 2,000 characters"),
    (BERT | {"x" * 2_001: 0}, "a text of more than 2,000 characters"),
    (BERT | {"id2label": {"cat": 0, "dog": 1}}, "names each label by its number"),
    (BERT | {"id2label": ["cat", "dog"]}, "names each label by its number"),
    (CLIP | {"text_config": {"id2label": "cat"}}, "names each label by its number"),
    (BERT | {"model_type": "mamba9"}, "is not supported; choose one of"),
    (BERT | {"model_type": "lama"}, "such as llama"),
    (BERT | {"model_type": ["bert"]}, "is not supported"),
    (
        VIT | {"model_type": "dinat"},
        "dinat for image classification is not supported: ",
    ),
    (LLAMA | {"other_layers": 999}, "layers are too many"),
    ({"model_type": "mine", "auto_map": {"AutoModel": "modeling.Mine"}}, "custom code"),
    (BERT | {"quantization_config": {"quant_method": "gptq"}}, "quantised weights"),
    (
        LLAMA | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        "the model they were made from, with --quantization nf4 for QLoRA on 4 bits",
    ),
    (LLAMA | {"compression_config": {"format": "int-quantized"}}, "with --quantization nf4"),
    (CLIP | {"text_config": {"auto_map": {"a": "b"}}}, "custom code"),
    (BERT | {"hidden_size": -768}, "hidden_size is '-768'; enter a whole number from 1"),
    (LLAMA | {"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim is '0'"),
    (BERT | {"hidden_size": 0}, "enter a whole number from 1 to 20,000,000"),
    (BERT | {"hidden_size": 7.5}, "enter a whole number"),
    (BERT | {"hidden_size": "768"}, "enter a whole number"),
    (BERT | {"hidden_size": True}, "enter a whole number"),
    (BERT | {"hidden_size": 10**12}, "enter a whole number"),
    (BERT | {"hidden_size": [768, None]}, "enter a whole number"),
    (BERT | {"hidden_size": float("nan")}, "enter a whole number"),
    (BERT | {"hidden_size": float("inf")}, "enter a whole number"),
    (BERT | {"extra": [float("nan")]}, "out of range"),
    (BERT | {"extra": 10**30}, "out of range"),
    (BERT | {"extra": 10**400}, "out of range"),
    (BERT | {"num_hidden_layers": 1_001}, "1,001 layers are too many"),
    (PRESETS["resnet"].config() | {"depths": [400, 400, 400]}, "1,200 layers are too many"),
    (PRESETS["t5-base"].config() | {"num_decoder_layers": 999}, "layers are too many"),
    (PRESETS["roberta"].config() | {"max_position_embeddings": 2}, "leaves no room"),
    (VIT | {"image_size": 5_000}, "maximum 4,096 pixels per side"),
    (VIT | {"num_labels": 2_000_000}, "maximum 1,000,000"),
]


@pytest.mark.parametrize(("config", "says"), WRONG)
def test_an_invalid_config_is_refused_with_a_reason(config: object, says: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "mine", "config": config})
    assert list(raised.value.fields) == ["config"]
    assert says in raised.value.fields["config"]
    assert len(raised.value.fields["config"]) < 1_000


BESIDE = [
    (
        {"peft_type": "LORA", "r": 16, "base_model_name_or_path": "org/base", "target_modules": []},
        "base model ('org/base') or the config.json of that, with --lora-rank 16",
    ),
    ({"peft_type": "IA3"}, "enter its base model or the config.json of that"),
    ({"_class_name": "StableDiffusionXLPipeline"}, "a whole pipeline of diffusers; enter unet/"),
    ({"_class_name": "DDIMScheduler", "beta_end": 0.1}, "a scheduler of diffusers"),
    ({"_class_name": "AutoencoderKL", "in_channels": 3}, "an autoencoder of diffusers"),
    ({"added_tokens_decoder": {f"{at}": {} for at in range(6_000)}}, "describes a tokenizer"),
    ({"image_processor_type": "CLIPImageProcessor"}, "a processor of inputs"),
    ({"word_embedding_dimension": 384}, "a part of sentence-transformers"),
    ({"producer": {"name": "modelopt"}, "quantization": {}}, "describes a quantizer"),
]


@pytest.mark.parametrize(("file", "says"), BESIDE)
def test_a_file_that_lies_beside_a_config_is_named(file: object, says: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "mine", "config": file})
    assert says in raised.value.fields["config"]


def test_labels_are_counted_however_many_are_named() -> None:
    names = {f"{number}": f"label {number}" for number in range(20_000)}
    numbers = {name: int(number) for number, name in names.items()}
    given = VIT | {"id2label": names, "label2id": numbers}
    named = Workload("mine", config=given)
    counted = Workload("mine", config=VIT | {"num_labels": 20_000})
    assert named.label_count == 20_000
    assert named.config == counted.config


def test_a_config_without_labels_takes_no_number_of_them() -> None:
    given = {name: value for name, value in VIT.items() if name != "num_labels"}
    assert Workload("mine", config=given | {"id2label": {}, "label2id": {}}).config == given


def test_code_of_a_repository_is_left_where_transformers_has_its_own() -> None:
    published = LLAMA | {
        "auto_map": {"AutoConfig": "a.Mine", "AutoModelForCausalLM": "a--b.LlamaForCausalLM"},
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    plain = {"architectures": ["LlamaForCausalLM"], PUBLISHED_FORMAT: "fp8"}
    assert parse_config(published) == parse_config(LLAMA | plain)


@pytest.mark.parametrize("published", ["fp8", "mxfp4"])
def test_an_answer_names_the_format_that_weights_are_published_in(published: str) -> None:
    given = LLAMA | {"quantization_config": {"quant_method": published}}
    (caveat,) = code_caveats(Workload("mine", config=given))
    assert f"published in {published}" in caveat
    assert code_caveats(Workload("mine", config=LLAMA)) == []


def test_infinity_and_nan_are_read_where_no_size_is_meant() -> None:
    """As published Mamba 2 and Nemotron-H have them: in JSON's place, or as the largest number."""
    text = """{"model_type": "bert", "time_step_limit": [0.0, Infinity], "initializer_range": NaN,
        "low": -Infinity, "limits": [-1e308, 1e308]}"""
    config = parse_config(text)
    assert config == {
        "model_type": "bert",
        "time_step_limit": [0.0, 1e12],
        "low": -1e12,
        "limits": [-1e12, 1e12],
    }
    assert parse_config(json.dumps(config, allow_nan=False)) == config


def test_a_window_that_is_not_used_may_be_zero() -> None:
    assert parse_config(LLAMA | {"sliding_window": 0})["sliding_window"] == 0


def test_a_config_that_transformers_saved_layer_by_layer_is_the_same_model() -> None:
    published = PRESETS["gemma-4-e2b"].config()
    saved = json.loads(AutoConfig.for_model(**published).to_json_string())
    assert saved["text_config"]["per_layer_config"]

    def shapes(config: dict[str, Any]) -> dict[str, torch.Size]:
        with torch.device("meta"):
            model = new_model(Workload("mine", config=config))
        return {name: parameter.shape for name, parameter in model.named_parameters()}

    assert shapes(parse_config(saved)) == shapes(published)


@pytest.mark.parametrize(
    ("model_type", "task", "side"),
    [
        ("segformer", Task.IMAGE_CLASSIFICATION, 224),
        ("segformer", Task.SEMANTIC_SEGMENTATION, 512),
        ("rt_detr", Task.OBJECT_DETECTION, 640),
    ],
)
def test_where_a_config_has_no_image_size_the_task_decides(
    model_type: str, task: Task, side: int
) -> None:
    assert Workload("mine", config={"model_type": model_type}, task=task).image_size == side


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen2ForSequenceClassification", Task.SEQUENCE_CLASSIFICATION),
        ("Qwen2ForTokenClassification", Task.TOKEN_CLASSIFICATION),
        ("Qwen2ForCausalLM", Task.CAUSAL_LANGUAGE_MODELLING),
        ("Qwen2ForMultipleChoice", Task.CAUSAL_LANGUAGE_MODELLING),  # transformers has none
    ],
)
def test_a_config_with_a_head_is_trained_for_what_the_head_is_for(
    name: str, expected: Task
) -> None:
    config = {"model_type": "qwen2", "architectures": [name]}
    assert describe(config, "mine").task is expected


def test_a_head_reads_images_of_the_size_that_its_backbone_was_made_for() -> None:
    config = small_config("depth_anything")
    config["backbone_config"] |= {"image_size": 518, "patch_size": 14}
    assert Workload("mine", config=config).image_size == 518


def test_a_task_that_is_refused_says_why() -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload("mine", config={"model_type": "xlm"}, task=Task.CAUSAL_LANGUAGE_MODELLING)
    said = raised.value.fields["task"]
    assert "mine for causal language modelling is not supported: it is an encoder" in said
    assert "choose one of " in said
    assert "masked-language-modelling" in said


REFUSED_BY_TRANSFORMERS = [
    BERT | {"hidden_size": 100, "num_attention_heads": 7},
    BERT | {"hidden_act": "nonesuch"},
    BERT | {"hidden_dropout_prob": "much"},
    LLAMA | {"rope_scaling": {"rope_type": "nonesuch"}},
    LLAMA | {"num_key_value_heads": 5},
    LLAMA | {"per_layer_config": {"99": {"intermediate_size": 64}}},
    LLAMA | {"per_layer_config": [1]},
    VIT | {"patch_size": 1_000},
    BERT | {"hidden_size": 1_000_000, "num_attention_heads": 10, "intermediate_size": 10_000_000},
]


@pytest.mark.parametrize("config", REFUSED_BY_TRANSFORMERS)
def test_a_config_whose_model_cannot_train_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        predict(Workload("mine", config=config))
    assert list(raised.value.fields) == ["config"]


def test_a_model_with_too_many_parameters_is_refused_quickly() -> None:
    huge = LLAMA | {"hidden_size": 131_072, "intermediate_size": 524_288, "num_hidden_layers": 100}
    begin = time.process_time()
    with pytest.raises(InvalidInput, match=r"a model of [\d,]{17,} parameters"):
        resolve(Workload("huge", config=huge))
    assert time.process_time() - begin < 20  # seconds; far less than building it would take


def test_a_preset_failure_is_not_blamed_on_its_config() -> None:
    with pytest.raises(ZeroDivisionError), blaming_the_config(Workload("bert")):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "ImportError, which does not say why"),
        ("''", "ImportError, which does not say why"),
        ("\nno module flash\nmore", "ImportError: 'no module flash'"),
    ],
)
def test_an_error_that_says_nothing_is_said_in_words(said: str, words: str) -> None:
    with pytest.raises(InvalidInput) as raised, blaming_the_config(Workload("mine", config=BERT)):
        raise ImportError(said)
    assert raised.value.fields["config"] == f"transformers cannot train it: {words}"


def test_an_old_release_is_told_where_it_cannot_be_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "VERSION", (4, 51))
    with pytest.raises(EngineError) as raised, blaming_the_config(Workload("mixtral-8x7b")):
        raise DynamicOutputShapeException(torch.ops.aten.nonzero.default)
    assert str(raised.value).startswith("Mixtral 8x7B cannot be traced with transformers 4.51 (")
    assert str(raised.value).endswith("; use a newer release")


def test_a_config_may_be_given_as_text() -> None:
    workload = Workload.parse({"config": json.dumps(BERT), "sequence_length": "64"})
    assert workload.model == OWN_CONFIG
    assert workload.config == BERT
    assert workload == Workload.parse(workload.to_dict())
    assert hash(workload) == hash(Workload.parse(workload.to_dict()))


def test_a_config_is_named_by_its_architecture() -> None:
    model = Workload("mine", config=LLAMA).preset
    assert (model.kind, model.task) == (Kind.TEXT, Task.CAUSAL_LANGUAGE_MODELLING)
    assert model.display_name == "mine"
    assert model.hub_id == ""
    vision = Workload("mine", config=VIT | {"image_size": 384, "num_labels": 10})
    assert (vision.image_size, vision.label_count) == (384, 10)


def test_a_different_config_does_not_take_a_presets_name() -> None:
    with pytest.raises(InvalidInput, match="bert is a preset with its own"):
        Workload("bert", config=LLAMA)


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_a_presets_config_predicts_the_same_as_the_preset() -> None:
    behaviour = cuda_behaviour(8.6)
    given_one = Workload("mine", sequence_length=16, config=PRESETS["distilbert"].config())
    preset = Workload("distilbert", sequence_length=16)
    assert trace(given_one, 2, behaviour) == trace(preset, 2, behaviour)


def test_config_fields_that_the_workload_sets_are_ignored() -> None:
    noise = {
        "attn_implementation": "someone/kernel",
        "_attn_implementation": "someone/kernel",
        "torch_dtype": "load",
        "use_cache": True,
        "problem_type": "multi_label_classification",
    }
    assert parse_config(BERT | noise) == BERT


@pytest.mark.slow
def test_a_file_may_hold_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PRESETS["distilbert"].config()))
    asked = ["--sequence-length", "16", "--gpu", "a10", "--batch-size", "2", "--json"]
    assert main(["predict", "mine", "--config", str(path), *asked]) == 0
    own = json.loads(capsys.readouterr().out)
    for named in ("distilbert", str(path)):
        assert main(["predict", named, *asked]) == 0
        assert json.loads(capsys.readouterr().out) == own


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read"), (b"\xff", "not JSON"), (b"{" + b" " * 2**21, "larger than 1 MiB")],
)
def test_a_file_without_a_config_is_refused(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["analyze", "mine", "--gpu", "a10", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --config: ")
    assert says in error


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**13), 10**13)
    | st.integers(-2, 70)
    | st.floats()
    | st.text(max_size=8),
    lambda inside: (
        st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4)
    ),
    max_leaves=6,
)
SMALL_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 99,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
BASES = [
    BERT | SMALL_SIZES,
    LLAMA | SMALL_SIZES,
    VIT | SMALL_SIZES,
    PRESETS["t5-small"].config() | {"num_layers": 1, "d_model": 32, "d_ff": 32, "vocab_size": 99},
    PRESETS["convnext-t"].config() | {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 4, 4, 4]},
    CLIP | {"text_config": CLIP["text_config"] | SMALL_SIZES},
]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A config with a few of its values replaced, removed or added."""
    config = dict(draw(st.sampled_from(BASES)))
    names = st.sampled_from(sorted(config)) | st.text(max_size=8)
    for name, value in draw(st.dictionaries(names, JSON, max_size=3)).items():
        config[name] = value
    if draw(st.booleans()):
        config.pop(draw(st.sampled_from(sorted(config))))
    return config


def predict(workload: Workload) -> None:
    """The smallest analysis of a config."""
    check_given(workload)
    with blaming_the_config(workload):
        trace(workload, 2, cuda_behaviour(8.6))


@given(mutated())
@settings(deadline=60_000)  # milliseconds, so that none takes minutes
def test_any_config_is_refused_or_checked(config: dict[str, Any]) -> None:
    try:
        workload = Workload.parse({"config": config})
        assert Workload.parse(workload.to_dict()) == workload
    except InvalidInput as error:
        assert set(error.fields) == {"config"}  # noqa: PT017  # to be refused is as good


@pytest.mark.slow
@given(mutated())
@settings(max_examples=10)
def test_any_config_is_refused_or_predicted(config: dict[str, Any]) -> None:
    try:
        predict(Workload.parse({"config": config}))
    except InvalidInput as error:
        assert set(error.fields) == {"config"}  # noqa: PT017  # to be refused is as good
