from __future__ import annotations

import pytest
import torch
from transformers import WhisperFeatureExtractor

from engine.core.errors import EngineError
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.models.tasks import Task
from engine.step.batches import images, make_batch
from engine.step.building import model_config
from engine.tests.shared import slow

BART = {"model_type": "bart", "vocab_size": 90, "eos_token_id": 2, "pad_token_id": 1}
YOLOS = {"model_type": "yolos", "num_hidden_layers": 1, "image_size": [64, 96]}
XMOD = {"model_type": "xmod", "vocab_size": 90, "languages": ["de_DE", "en_XX"]}
LAYOUT = {"model_type": "layoutlmv3", "vocab_size": 90, "input_size": 32}
CANINE = {"model_type": "canine", "num_hidden_layers": 1}
SEGMENTATION = Task.SEMANTIC_SEGMENTATION
XLNET = {"model_type": "xlnet", "vocab_size": 90, "d_model": 64, "n_layer": 1}
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


def test_a_text_ends_where_models_look_for_its_end() -> None:
    workload = Workload("bart-like", config=BART, sequence_length=8)
    ids = make_batch(workload, 3)["input_ids"]
    assert (ids == 2).sum(1).tolist() == [1, 1, 1]
    assert ids[:, -1].tolist() == [2, 2, 1]
    assert not torch.isin(ids[:, :-2], torch.tensor([0, 1, 2])).any()


def test_questions_and_choices_are_told_from_texts_by_separators() -> None:
    config = {"model_type": "longformer", "vocab_size": 90}
    for task, at in ((Task.QUESTION_ANSWERING, [4, 5]), (Task.MULTIPLE_CHOICE, [10, 11])):
        workload = Workload("mine", config=config, task=task, sequence_length=16)
        ids = make_batch(workload, 2)["input_ids"].view(-1, 16)
        assert (ids == 2).nonzero()[:3, 1].tolist() == [*at, 15]
        assert ((ids == 2).sum(1) == 3).all()


def test_models_of_documents_read_where_the_tokens_stand_and_the_page() -> None:
    workload = Workload("mine", config=LAYOUT, task=Task.TOKEN_CLASSIFICATION, sequence_length=8)
    batch = make_batch(workload, 3)
    assert batch["bbox"].shape == (3, 8, 4)
    assert batch["pixel_values"].shape == (3, 3, 32, 32)
    assert batch["bbox"].dtype is torch.int64


def test_a_model_without_a_vocabulary_reads_characters() -> None:
    batch = make_batch(Workload("mine", config=CANINE, task=CLASSIFIED, sequence_length=8), 3)
    assert batch["input_ids"].shape == (3, 8)
    assert batch["input_ids"][:, -1].tolist() == [0xE001, 0xE001, 0]


def test_a_text_is_in_the_first_language_unless_the_config_names_one() -> None:
    for named, language in (({}, "de_DE"), ({"default_language": "en_XX"}, "en_XX")):
        config = model_config(Workload("mine", config=XMOD | named, task=CLASSIFIED))
        assert config.default_language == language


def test_each_task_of_text_has_a_batch_of_its_own() -> None:
    def batch_for(task: Task) -> dict[str, torch.Tensor]:
        return make_batch(Workload("xlnet-like", config=XLNET, task=task, sequence_length=8), 3)

    answers = batch_for(Task.QUESTION_ANSWERING)
    assert answers["start_positions"].shape == answers["end_positions"].shape == (3,)
    choices = batch_for(Task.MULTIPLE_CHOICE)
    assert choices["input_ids"].shape == choices["attention_mask"].shape == (3, 4, 8)
    permuted = batch_for(Task.PERMUTED_LANGUAGE_MODELLING)
    assert permuted["perm_mask"].shape == permuted["target_mapping"].shape == (3, 8, 8)
    for task in (Task.SENTENCE_EMBEDDING, Task.REWARD_MODELLING):
        assert batch_for(task)["input_ids"].shape == (6, 8)


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


def test_images_of_any_shape_have_as_many_patches_as_a_square() -> None:
    config = {"model_type": "siglip2", "vision_config": {"num_patches": 256}}
    workload = Workload("naflex", config=config, task=Task.IMAGE_CLASSIFICATION)
    assert workload.image_size == 256
    batch = make_batch(workload, 2)
    assert batch["pixel_values"].shape == (2, 256, 3 * 16 * 16)
    assert batch["pixel_attention_mask"].shape == (2, 256)
    assert batch["spatial_shapes"].shape == (2, 2)


def test_models_of_square_images_get_squares() -> None:
    config = {"model_type": "lw_detr", "backbone_config": {"model_type": "lw_detr_vit"}}
    batch = make_batch(Workload("detector", config=config, image_size=128), 2)
    assert batch["pixel_values"].shape == (2, 3, 128, 128)


def test_image_classifiers_have_a_label_each() -> None:
    assert make_batch(Workload("resnet", image_size=32), 2)["labels"].shape == (2,)


def test_pairs_are_images_and_padded_sentences() -> None:
    batch = make_batch(Workload("clip"), 2)
    assert set(batch) == {"input_ids", "attention_mask", "pixel_values"}
    assert batch["input_ids"].shape == (2, 77)
    assert int(batch["input_ids"].max()) < 49_408


def test_detectors_have_the_boxes_of_a_given_number_of_objects() -> None:
    workload = Workload("yolos-like", config=YOLOS, image_size=96, target_count=5)
    batch = make_batch(workload, 2)
    assert batch["pixel_values"].shape == (2, 3, 96, 128)  # a photograph of 640 by 480
    assert [len(objects["class_labels"]) for objects in batch["labels"]] == [5, 5]
    assert [objects["boxes"].shape for objects in batch["labels"]] == [(5, 4), (5, 4)]


def test_segmenters_have_a_class_for_each_pixel_or_a_mask_for_each_segment() -> None:
    segformer = Workload("small", config={"model_type": "segformer"}, task=SEGMENTATION)
    assert make_batch(segformer, 2)["labels"].shape == (2, 512, 512)
    maskformer = {"model_type": "mask2former"}
    batch = images.with_segments(Workload("small", config=maskformer, target_count=3), 2)
    assert [masks.shape[0] for masks in batch["mask_labels"]] == [3, 3]
    assert [len(classes) for classes in batch["class_labels"]] == [3, 3]


def test_half_of_the_patches_are_hidden() -> None:
    batch = make_batch(Workload("vit-b", task=Task.MASKED_IMAGE_MODELLING), 2)
    assert batch["bool_masked_pos"].shape == (2, 14 * 14)
    assert batch["bool_masked_pos"].sum(1).tolist() == [98, 98]


def test_videos_have_as_many_frames_as_were_asked_for() -> None:
    video = {"model_type": "timesformer", "num_frames": 8, "image_size": 64}
    batch = make_batch(Workload("small", config=video), 2)
    assert batch["pixel_values"].shape == (2, 8, 3, 64, 64)
    longer = Workload("small", config=video, frame_count=12)
    assert make_batch(longer, 2)["pixel_values"].shape[1] == 12
    assert model_config(longer).num_frames == 12


def test_waves_are_as_long_as_was_asked_for() -> None:
    listener = {"model_type": "wav2vec2", "vocab_size": 40}
    batch = make_batch(Workload("small", config=listener, task=Task.CTC, audio_seconds=3), 2)
    assert batch["input_values"].shape == (2, 3 * 16_000)
    assert batch["labels"].shape == (2, 128)
    classified = Workload("small", config=listener, task=Task.AUDIO_CLASSIFICATION)
    assert make_batch(classified, 2)["labels"].tolist() == [0, 0]


def test_a_published_speech_encoder_that_leaves_its_vocabulary_open_transcribes_letters() -> None:
    config = {"model_type": "wav2vec2-bert", "vocab_size": None, "layerdrop": 0.1}
    workload = Workload("w2v-bert", config=config, task=Task.CTC)
    assert model_config(workload).vocab_size == 32
    assert make_batch(workload, 2)["labels"].max() < 32


def test_no_part_of_a_model_drops_layers_at_random() -> None:
    config = {"model_type": "parakeet_ctc", "encoder_config": {"layerdrop": 0.1}}
    assert model_config(Workload("parakeet", config=config)).encoder_config.layerdrop == 0


def test_speech_has_the_features_of_whispers_extractor() -> None:
    half_a_minute = torch.zeros(30 * 16_000).numpy()
    extracted = WhisperFeatureExtractor()(half_a_minute, sampling_rate=16_000, return_tensors="np")
    batch = make_batch(Workload("whisper"), 2)
    assert set(batch) == {"input_features", "labels"}
    assert batch["input_features"].shape == (2, *extracted["input_features"].shape[1:])
    assert batch["input_features"].dtype is torch.float32
    assert batch["labels"].shape == (2, 128)


def test_a_published_forecaster_reads_its_context_its_lags_and_dates() -> None:
    config = {  # of huggingface/time-series-transformer-tourism-monthly
        "model_type": "time_series_transformer",
        "context_length": 24,
        "prediction_length": 24,
        "lags_sequence": [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 24, 25, 35, 36, 37],
        "num_time_features": 2,
        "num_static_categorical_features": 1,
        "cardinality": [366],
        "embedding_dimension": [6],
        "scaling": "std",
    }
    batch = make_batch(Workload("tourism", config=config), 2)
    assert batch["past_values"].shape == batch["past_observed_mask"].shape == (2, 61)
    assert batch["past_time_features"].shape == (2, 61, 2)
    assert batch["future_values"].shape == (2, 24)
    assert batch["static_categorical_features"].shape == (2, 1)
    channels = {"model_type": "patchtst", "num_input_channels": 7, "context_length": 512}
    batch = make_batch(Workload("etth1", config=channels | {"prediction_length": 96}), 2)
    assert batch["past_values"].shape == (2, 512, 7)
    assert batch["future_values"].shape == (2, 96, 7)


def test_language_models_that_listen_have_a_token_for_each_piece_of_sound() -> None:
    audio = {"model_type": "voxtral_encoder", "num_hidden_layers": 1}
    text = {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 1000}
    config = {"model_type": "voxtral", "audio_config": audio, "text_config": text}
    workload = Workload("small", config=config | {"audio_token_id": 24}, sequence_length=16)
    batch = make_batch(workload, 2)
    assert batch["input_features"].shape == (2, 128, 3000)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 375 + 16)
    assert (batch["input_ids"] == 24).sum(1).tolist() == [375, 375]


PAIRS = [(name, task) for name, preset in PRESETS.items() for task in preset.tasks]
ONE_OF_EACH_TASK = list({task: (name, task) for name, task in reversed(PAIRS)}.values())


@pytest.mark.longer
@pytest.mark.parametrize("pairs", [ONE_OF_EACH_TASK, slow(PAIRS)], ids=["tasks", "presets"])
def test_every_task_of_every_preset_has_a_batch(pairs: list[tuple[str, Task]]) -> None:
    for name, task in pairs:
        batch = make_batch(Workload(name, task=task), 1)
        texts = 2 if task in (Task.SENTENCE_EMBEDDING, Task.REWARD_MODELLING) else 1
        if task is Task.IMAGE_TEXT_TO_TEXT:
            batch.pop("pixel_values")  # in some models all patches of all images in a row
        assert all(len(values) == texts for values in batch.values())


def test_a_model_without_a_config_has_no_batch() -> None:
    with pytest.raises(EngineError, match="the config of a/b was not fetched"):
        make_batch(Workload("a/b"), 1)
