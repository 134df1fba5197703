"""The batches of vision-language models: an image takes the tokens that its model is known for."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.interface.texts import Texts, refused
from engine.interface.workload import Workload
from engine.models.tasks import SizeLimits, Task
from engine.step.batches import make_batch
from engine.step.building import new_model

pytestmark = pytest.mark.torch

_LLAMA = {"model_type": "llama", "num_hidden_layers": 1}
_CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
_SIGLIP = {"model_type": "siglip_vision_model", "patch_size": 14}
LLAVA = {
    "model_type": "llava",
    "text_config": _LLAMA,
    "vision_config": _CLIP | {"hidden_size": 1024, "num_attention_heads": 16},
}
BLIP = {"model_type": "blip", "text_config": {"num_hidden_layers": 1}}
TEXT = 32


def workload(config: dict[str, Any], **sizes: int) -> Workload:
    task, length = Task.IMAGE_TEXT_TO_TEXT, TEXT
    named = {"model": "test/model", "config": config, "task": task, "sequence_length": length}
    return Workload.parse(named | dict(sizes))


@pytest.mark.parametrize(
    ("config", "sizes", "tokens"),
    [
        pytest.param(LLAVA, {}, 24**2, id="llava-1.5: patches of 14 of 336 pixels"),
        pytest.param(
            {
                "model_type": "paligemma",
                "text_config": {"model_type": "gemma", "num_hidden_layers": 1},
                "vision_config": _SIGLIP | {"image_size": 224},
            },
            {},
            256,
            id="paligemma at 224",
        ),
        pytest.param(
            {
                "model_type": "gemma3",
                "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 1},
                "vision_config": _SIGLIP | {"image_size": 896},
            },
            {},
            256,
            id="gemma3 pools its 4,096 patches",
        ),
        pytest.param(
            {"model_type": "qwen2_vl", "text_config": {"num_hidden_layers": 1}},
            {"image_size": 448},
            16**2,
            id="qwen2-vl merges four patches of 14",
        ),
        pytest.param(
            {
                "model_type": "idefics3",
                "text_config": _LLAMA,
                "vision_config": {"image_size": 364, "patch_size": 14},
            },
            {},
            17 * 169,
            id="idefics3 has 16 tiles and the whole",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {
                "model_type": "llama4",
                "text_config": {"num_hidden_layers": 1, "num_local_experts": 2},
                "vision_config": {
                    "image_size": 336,
                    "num_hidden_layers": 1,
                    "hidden_size": 1408,
                    "intermediate_size": 5632,
                },
            },
            {},
            144,
            id="llama-4: a tile of 336",
        ),
    ],
)
def test_an_image_takes_as_many_tokens_as_its_model_is_known_for(
    config: dict[str, Any], sizes: dict[str, int], tokens: int
) -> None:
    ids = make_batch(workload(config, **sizes), 2)["input_ids"]
    assert ids.shape == (2, TEXT + tokens)


def test_each_image_has_its_tokens_after_one_of_the_text() -> None:
    one, two = (make_batch(workload(LLAVA, image_count=count), 2) for count in (1, 2))
    assert two["input_ids"].shape[1] == one["input_ids"].shape[1] + 576
    assert two["pixel_values"].shape == (4, 3, 336, 336)
    is_image = two["input_ids"][0] == 32_000
    assert is_image[:4].tolist() == [False, True, True, True]
    assert is_image.nonzero()[[0, 575, 576, -1], 0].tolist() == [1, 576, 578, 1153]


def test_a_batch_has_only_what_the_model_takes() -> None:
    batch = make_batch(workload(BLIP), 2)
    assert batch.keys() == {"input_ids", "attention_mask", "labels", "pixel_values"}
    assert batch["input_ids"].shape == (2, TEXT)


def test_a_model_that_reads_one_image_takes_no_second() -> None:
    with pytest.raises(InvalidInput) as refusal:
        workload(BLIP, image_count=2)
    assert refusal.value.fields.keys() == {"image_count"}


@pytest.mark.longer
def test_a_model_that_reads_the_question_beside_the_image_gets_it() -> None:
    config = {"model_type": "instructblip", "image_token_id": 50_264}
    batch = make_batch(Workload("instructblip", config=config, sequence_length=16), 2)
    assert batch["qformer_input_ids"].shape == batch["qformer_attention_mask"].shape == (2, 16)
    assert batch["input_ids"].shape == (2, 32 + 16)


def test_an_encoder_of_images_has_a_decoder_that_writes_the_text() -> None:
    config = {
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit", "num_hidden_layers": 1, "image_size": 384},
        "decoder": {"model_type": "trocr", "decoder_layers": 1},
    }
    batch = make_batch(workload(config), 2)
    assert batch.keys() == {"pixel_values", "labels"}
    assert batch["pixel_values"].shape == (2, 3, 384, 384)
    assert batch["labels"].shape == (2, TEXT)


def test_what_it_writes_is_as_long_as_its_decoder_takes() -> None:
    """TrOCR reads no prompt, so that new tokens alone take places, as many as its config says."""
    config = {
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit", "num_hidden_layers": 1, "image_size": 384},
        "decoder": {"model_type": "trocr", "decoder_layers": 1, "max_position_embeddings": 384},
    }
    writing = workload(config)
    assert writing.preset.limits("sequence_length", writing.task) == SizeLimits(384, 1, 384)
    assert refused(writing, Texts(prompt_length=4096, new_tokens=384)) == {}
    assert refused(writing, Texts(new_tokens=385)) == {
        "new_tokens": "test/model takes at most 384 tokens"
    }


def test_a_model_without_a_token_for_images_is_told_where_they_stand() -> None:
    config = {
        "model_type": "kosmos-2",
        "latent_query_num": 8,
        "text_config": {"layers": 1},
        "vision_config": {"num_hidden_layers": 1},
    }
    batch = make_batch(workload(config), 2)
    assert batch["input_ids"].shape == (2, TEXT + 8)
    assert batch["image_embeds_position_mask"].sum(1).tolist() == [8, 8]


def test_where_images_need_torchvision_the_error_says_what_to_install() -> None:
    with (
        patch("engine.models.model.find_spec", lambda name: None),
        pytest.raises(EngineError, match=r"torchvision.*pip install 'memorymark\[torchvision\]'"),
    ):
        new_model(workload({"model_type": "lfm2_vl"}))
