from __future__ import annotations

import pytest
import torch
from transformers import WhisperFeatureExtractor

from engine.errors import EngineError
from engine.models.kinds import Task
from engine.models.presets import PRESETS
from engine.step.batches import make_batch
from engine.workload import Workload

CLASSIFIED = Task.SEQUENCE_CLASSIFICATION


def text(model: str, task: Task | None = None) -> Workload:
    return Workload(model, task=task, sequence_length=16)


@pytest.mark.parametrize(
    ("workload", "labels"),
    [
        (text("bert"), (4,)),
        (text("gpt2", CLASSIFIED), (4,)),
        (text("bert", Task.TOKEN_CLASSIFICATION), (4, 16)),
        (text("bert", Task.MASKED_LANGUAGE_MODELLING), (4, 16)),
        (text("t5-small"), (4, 16)),
    ],
)
def test_sentences_are_padded_like_real_ones(workload: Workload, labels: tuple[int, ...]) -> None:
    batch = make_batch(workload, 4)
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].shape == (4, 16)
    assert batch["input_ids"].dtype is torch.int64
    assert int(batch["input_ids"].max()) < workload.preset.config()["vocab_size"]
    assert 0 < int((batch["attention_mask"] == 0).sum()) < 16
    assert batch["labels"].shape == labels
    assert batch["labels"].dtype is torch.int64


def test_text_for_language_models_is_packed_to_full_length() -> None:
    batch = make_batch(text("gpt2"), 3)
    assert set(batch) == {"input_ids", "labels"}
    assert torch.equal(batch["input_ids"], batch["labels"])
    assert batch["labels"].data_ptr() != batch["input_ids"].data_ptr()


@pytest.mark.parametrize(
    "workload", [Workload("bert", label_count=1), Workload("vit-b", label_count=1)]
)
def test_one_label_makes_it_a_regression(workload: Workload) -> None:
    assert make_batch(workload, 2)["labels"].dtype is torch.float32


@pytest.mark.parametrize("side", [32, 224, 400])
@pytest.mark.parametrize("model", ["resnet", "vit-b", "clip"])
def test_images_have_the_shape_from_the_models_image_processor(model: str, side: int) -> None:
    batch = make_batch(Workload(model, image_size=side), 2)
    assert batch["pixel_values"].shape == (2, 3, side, side)
    assert batch["pixel_values"].dtype is torch.float32


def test_image_classifiers_have_a_label_each() -> None:
    assert make_batch(Workload("resnet", image_size=32), 2)["labels"].shape == (2,)


def test_pairs_are_images_and_padded_sentences() -> None:
    batch = make_batch(Workload("clip"), 2)
    assert set(batch) == {"input_ids", "attention_mask", "pixel_values"}
    assert batch["input_ids"].shape == (2, 77)
    assert int(batch["input_ids"].max()) < 49_408


def test_speech_has_the_features_of_whispers_extractor() -> None:
    half_a_minute = torch.zeros(30 * 16_000).numpy()
    extracted = WhisperFeatureExtractor()(half_a_minute, sampling_rate=16_000, return_tensors="np")
    batch = make_batch(Workload("whisper"), 2)
    assert set(batch) == {"input_features", "labels"}
    assert batch["input_features"].shape == (2, *extracted["input_features"].shape[1:])
    assert batch["input_features"].dtype is torch.float32
    assert batch["labels"].shape == (2, 128)


def test_every_task_of_every_preset_has_a_batch() -> None:
    for name, preset in PRESETS.items():
        for task in preset.tasks:
            batch = make_batch(Workload(name, task=task), 1)
            assert all(tensor.shape[0] == 1 for tensor in batch.values())


def test_a_model_without_a_config_has_no_batch() -> None:
    with pytest.raises(EngineError, match="the config of a/b was not fetched"):
        make_batch(Workload("a/b"), 1)
