from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interface.request import AnalysisRequest
from engine.jobs.logged_config import logged_speed, request_fields

TRAINER = {
    "_name_or_path": "google-bert/bert-base-uncased",
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "gradient_checkpointing": True,
    "bf16": True,
    "fp16": False,
    "optim": "adamw_torch_fused",
    "torch_compile": False,
    "max_length": 20,
}


def test_the_config_that_the_trainer_logs_gives_a_request() -> None:
    fields = request_fields(TRAINER)
    assert fields == {
        "model": "bert",
        "current_batch_size": 16,
        "gradient_accumulation": 2,
        "gradient_checkpointing": True,
        "precision": "bf16-mixed",
        "optimizer": "adamw",
    }
    AnalysisRequest.parse(fields | {"gpu": "a10"})


def test_mlflow_logs_the_same_as_text() -> None:
    assert request_fields({key: str(value) for key, value in TRAINER.items()}) == request_fields(
        TRAINER
    )


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"bf16": False, "fp16": False}, "fp32"),
        ({"bf16": False, "fp16": False, "tf32": True}, "tf32"),
        ({"bf16": False, "fp16": True}, "fp16-mixed"),
        ({"bf16": True, "torch_dtype": "bfloat16"}, "bf16-true"),
        ({"bf16": True, "dtype": "torch.bfloat16"}, "bf16-true"),
        ({"precision": "16-mixed"}, "fp16-mixed"),
        ({"precision": 32}, "fp32"),
        ({"precision": "bf16-true"}, "bf16-true"),
        ({"precision": "int3"}, None),
        ({}, None),
    ],
)
def test_precision_is_that_of_the_trainer_or_of_lightning(
    config: dict[str, Any], precision: str | None
) -> None:
    assert request_fields(config).get("precision") == precision


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({"_name_or_path": "bert-base-uncased"}, "bert"),
        ({"model_name_or_path": "/data/checkpoint", "_name_or_path": "org/model"}, "org/model"),
        ({"model_name_or_path": "./out"}, None),
        ({"model": {"hidden": 3}}, None),
        ({"model_name": ""}, None),
    ],
)
def test_the_model_is_a_preset_or_an_id_of_the_hub(
    config: dict[str, Any], model: str | None
) -> None:
    assert request_fields(config).get("model") == model


def test_max_length_is_that_of_samples_only_in_sft() -> None:
    assert "sequence_length" not in request_fields({"max_length": 20})
    assert request_fields({"max_length": 1024, "packing": True})["sequence_length"] == 1024


@given(
    st.dictionaries(
        st.sampled_from([*TRAINER, "model", "batch_size", "precision", "lora_r", "packing"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    )
)
def test_any_config_gives_fields_that_a_lab_takes(config: dict[str, Any]) -> None:
    fields = request_fields(config)
    assert request_fields({}) == {}
    for name, value in fields.items():
        AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | {name: value})


@pytest.mark.parametrize(
    ("metrics", "speed"),
    [
        ({"train_samples_per_second": 99.5}, 99.5),
        ({"train/train_samples_per_second": 12}, 12.0),
        ({"train_samples_per_second": 0, "samples_per_second": 3.0}, 3.0),
        ({"train_samples_per_second": "fast"}, None),
        ({"eval_samples_per_second": 50.0}, None),
        ({}, None),
    ],
)
def test_speed_is_that_of_training(metrics: dict[str, object], speed: float | None) -> None:
    assert logged_speed(metrics) == speed
