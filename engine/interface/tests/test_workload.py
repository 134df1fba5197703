from __future__ import annotations

import json

import pytest

from engine.core.choices import Precision
from engine.core.errors import InvalidInput
from engine.core.optimizers import Optimizer
from engine.features import CONTRADICTIONS
from engine.interface.workload import Workload
from engine.models.tasks import Task


def test_missing_sizes_take_the_presets_default() -> None:
    assert Workload("bert").sequence_length == 128
    assert Workload("bert").image_size is None
    assert Workload("resnet").image_size == 224


def test_a_workload_survives_json() -> None:
    workload = Workload(
        "gpt2", precision=Precision.BF16_MIXED, optimizer=Optimizer.SGD, sequence_length=512
    )
    assert Workload.parse(json.loads(json.dumps(workload.to_dict()))) == workload


def test_numbers_may_be_text_and_empty_text_means_the_default() -> None:
    given = {"model": "bert", "sequence_length": " 64 ", "precision": "", "image_size": None}
    assert Workload.parse(given) == Workload("bert", sequence_length=64)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({}, "model", "choose one of the "),
        (
            {"model": "alexnet"},
            "model",
            "that `memorymark models` lists, such as resnet",
        ),
        ({"model": ["bert"]}, "model", "unknown model"),
        ({"model": "bert", "precision": "fp8"}, "precision", "choose one of fp32, tf32"),
        ({"model": "bert", "optimizer": "lamb"}, "optimizer", "choose one of adamw, adamw-foreach"),
        ({"model": "bert", "mode": "test"}, "mode", "choose one of train, eval"),
        ({"model": "bert", "sequence_length": 513}, "sequence_length", "from 1 to 512"),
        ({"model": "bert", "sequence_length": 0}, "sequence_length", "from 1 to 512"),
        ({"model": "bert", "sequence_length": -1}, "sequence_length", "from 1 to 512"),
        ({"model": "bert", "sequence_length": 2.5}, "sequence_length", "whole number"),
        ({"model": "bert", "sequence_length": True}, "sequence_length", "whole number"),
        ({"model": "bert", "sequence_length": "1e2"}, "sequence_length", "whole number"),
        ({"model": "bert", "sequence_length": "9" * 5000}, "sequence_length", "whole number"),
        ({"model": "gpt2", "sequence_length": 1025}, "sequence_length", "from 2 to 1,024"),
        ({"model": "resnet", "image_size": 31}, "image_size", "from 32 to 1,024"),
        ({"model": "resnet", "sequence_length": 8}, "sequence_length", "takes no sequence length"),
        ({"model": "bert", "image_size": 224}, "image_size", "takes no image size"),
        ({"model": "bert", "task": "contrastive"}, "task", "choose one of sequence-classification"),
        ({"model": "clip", "task": "juggling"}, "task", "choose one of contrastive"),
        ({"model": "bert", "task": 3}, "task", "choose one of"),
        ({"model": "bert", "label_count": 0}, "label_count", "from 1 to 1,000,000"),
        ({"model": "bert", "label_count": 10**9}, "label_count", "from 1 to 1,000,000"),
        ({"model": "bert", "label_count": "two"}, "label_count", "whole number"),
        ({"model": "gpt2", "label_count": 2}, "label_count", "has no labels to count"),
        ({"model": "whisper", "image_size": 224}, "image_size", "takes no image size"),
        ({"model": "swin-t", "image_size": 223}, "image_size", "from 224 to 1,024"),
        ({"model": "bert", "use_cache": True}, "use_cache", "returns no keys and values"),
        ({"model": "gpt2", "use_cache": "maybe"}, "use_cache", "enter true or false"),
        ({"model": "bert", "batch": 3}, "batch", "unknown field"),
    ],
)
def test_an_invalid_field_is_named_with_what_to_do(
    given: dict[str, object], field: str, says: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse(given)
    assert list(raised.value.fields) == [field]
    assert says in raised.value.fields[field]


def test_all_invalid_fields_are_named_together() -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "bert", "precision": "x", "mode": "y", "sequence_length": 0})
    assert set(raised.value.fields) == {"precision", "mode", "sequence_length"}


@pytest.mark.parametrize("model", [{"model": "alexnet"}, {"config": "{}"}], ids=str)
@pytest.mark.parametrize(
    "given",
    [
        {"task": "juggling"},
        {"label_count": 0},
        {"task": "juggling", "label_count": "two"},
        {"task": "causal-language-modelling", "label_count": 2},
        {"sequence_length": -1, "image_size": "large"},
    ],
    ids=str,
)
def test_the_other_fields_are_checked_even_if_the_model_is_invalid(
    model: dict[str, object], given: dict[str, object]
) -> None:
    wrong = {"label_count"} if given.get("label_count") == 2 else set(given)
    with pytest.raises(InvalidInput) as raised:
        Workload.parse(model | given)
    assert set(raised.value.fields) == set(model) | wrong


def test_a_hub_models_labels_are_checked_before_its_config_is_fetched() -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload("someone/her-model", label_count=0)
    assert list(raised.value.fields) == ["label_count"]


def test_a_message_never_repeats_long_input() -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "x" * 10_000})
    assert len(str(raised.value)) < 600


def test_missing_tasks_and_labels_are_the_models_own() -> None:
    assert Workload("bert").task is Task.SEQUENCE_CLASSIFICATION
    assert Workload("bert").label_count == 2
    assert Workload("vit-b").label_count == 1000
    assert Workload("gpt2").label_count is None
    assert Workload("bert", task=Task.TOKEN_CLASSIFICATION).label_count == 9
    given = {"model": "gpt2", "task": "sequence-classification", "label_count": "7"}
    assert Workload.parse(given).label_count == 7


def test_a_task_that_is_left_to_the_model_contradicts_nothing() -> None:
    # A Hub model's task is empty until its config is fetched, and the form's until it is chosen.
    assert all(None not in one.settings["task"] for one in CONTRADICTIONS if "task" in one.settings)
