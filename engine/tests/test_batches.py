from __future__ import annotations

import pytest
import torch

from engine.batches import make_batch
from engine.workload import Workload


def test_a_classifiers_text_is_padded_as_real_sentences_are() -> None:
    batch = make_batch(Workload("bert", sequence_length=16), 4)
    assert batch["input_ids"].shape == (4, 16)
    assert batch["input_ids"].dtype is torch.int64
    assert int(batch["input_ids"].max()) < 30522
    assert batch["labels"].shape == (4,)
    assert 0 < int((batch["attention_mask"] == 0).sum()) < 16


def test_a_language_models_text_is_packed_to_the_full_length() -> None:
    batch = make_batch(Workload("gpt2", sequence_length=16), 3)
    assert set(batch) == {"input_ids", "labels"}
    assert torch.equal(batch["input_ids"], batch["labels"])
    assert batch["labels"].data_ptr() != batch["input_ids"].data_ptr()


@pytest.mark.parametrize("side", [32, 224, 400])
def test_images_have_the_shape_that_the_models_image_processor_gives(side: int) -> None:
    batch = make_batch(Workload("resnet", image_size=side), 2)
    assert batch["pixel_values"].shape == (2, 3, side, side)
    assert batch["pixel_values"].dtype is torch.float32
    assert batch["labels"].shape == (2,)
