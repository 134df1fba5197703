from __future__ import annotations

from typing import Any

import pytest

from analyses.figures.settings import command_of, input_size, settings_of
from analyses.formatting import gpu_name, model_name
from analyses.tests.factories import make_request
from analyses.tests.first_version import NEW_IN_WORKLOADS

RARE: dict[str, object] = {
    "task": "token-classification",
    "label_count": 17,
    "attention": "eager",
    "gradient_checkpointing": True,
    "gradient_accumulation": 4,
    "lora_rank": 8,
    "lora_targets": "query,value",
    "parallelism": "ddp",
    "world_size": 2,
    "allocator": "expandable_segments:True",
}
CONFIG = {"model_type": "bert", "vocab_size": 1000, "max_position_embeddings": 128}


def test_settings_have_units_and_leave_out_inapplicable_ones() -> None:
    settings = dict(settings_of(make_request()))
    assert settings["Sequence length"] == "128 tokens"
    assert settings["GPU"] == "NVIDIA A10"
    assert settings["Current batch size"] == "16 samples"
    of_one = dict(settings_of(make_request(current_batch_size=1)))
    assert of_one["Current batch size"] == "1 sample"
    assert "Image size" not in settings
    assert "Memory limit" not in settings
    limited = dict(settings_of(make_request(memory_limit_bytes=2**33, price_per_hour_usd=2)))
    assert limited["Memory limit"] == "8.00 GiB"
    assert limited["Price per GPU-hour (assumed)"] == "$2.00"


def test_the_input_size_is_shown_where_it_is_known() -> None:
    assert input_size(make_request()) == "128 tokens"
    assert input_size(make_request(model="resnet")) == "224 pixels per side"
    seeing = make_request(model="", config={"model_type": "qwen2_vl"}, image_count=4)
    assert input_size(seeing) == "512 tokens, 224 pixels per side, 4 images per sample"
    assert input_size(make_request(model="acme/own")) == ""


def test_names_outside_the_catalogue_stay_unchanged() -> None:
    assert (model_name("gpt2"), model_name("acme/own")) == ("GPT-2", "acme/own")
    assert gpu_name("local") == "this lab's node"
    assert gpu_name("abacus") == "abacus"


def test_the_command_has_the_same_settings() -> None:
    command = command_of(make_request(model="resnet", image_size=64, current_batch_size=32))
    assert command.startswith("memorymark analyze resnet --gpu a10")
    assert "--current-batch-size 32" in command
    assert "--image-size 64" in command
    assert "--image-count" not in command
    assert "sequence" not in command
    assert "memory-limit" not in command
    limited = command_of(make_request(memory_limit_bytes=2**30, price_per_hour_usd=1.5))
    assert "--memory-limit 1073741824" in limited
    assert "--hours-per-run 8 --runs-per-year 100 --price-per-hour 1.5" in limited


def test_rare_settings_are_only_listed_if_changed() -> None:
    labels = {
        "Labels", "Allocator options", "Attention", "Gradient checkpointing", "Frozen backbone",
        "LoRA rank", "Mode", "Task",
        "LoRA targets", "Gradient accumulation", "torch.compile", "Parallelism",
        "Global batch to keep", "Architecture",
    }  # fmt: skip
    assert not labels & dict(settings_of(make_request())).keys()
    settings = dict(settings_of(make_request(**RARE)))
    assert settings["Task"] == "token-classification"
    assert settings["Labels"] == "17"
    assert settings["Gradient checkpointing"] == "on"
    assert settings["Gradient accumulation"] == "4 micro-batches per step"
    assert (settings["Parallelism"], settings["Number of GPUs"]) == ("ddp", "2")
    assert settings["Allocator options"] == "expandable_segments:True"
    cached = dict(settings_of(make_request(model="gpt2", use_cache=False)))
    assert cached["Key-value cache"] == "off"
    assert "Key-value cache" not in dict(settings_of(make_request(model="gpt2")))
    frozen = dict(settings_of(make_request(frozen_backbone=True, global_batch_size=64)))
    assert (frozen["Frozen backbone"], frozen["Global batch to keep"]) == ("on", "64 samples")


def test_a_models_own_labels_are_not_a_change() -> None:
    assert "Labels" not in dict(settings_of(make_request(model="resnet")))
    assert dict(settings_of(make_request(model="resnet", label_count=10)))["Labels"] == "10"


def test_the_command_only_has_rare_settings_if_changed() -> None:
    flags = [f"--{name.replace('_', '-')}" for name in RARE]
    plain, changed = command_of(make_request()), command_of(make_request(**RARE))
    assert not [flag for flag in flags if flag in plain.split()]
    assert {flag for flag in flags if flag in changed.split()} == set(flags)
    assert "--gradient-checkpointing true" in changed
    assert "--lora-targets query,value" in changed


def test_a_hub_model_is_shown_by_its_id() -> None:
    request = make_request(model="acme/own")
    assert dict(settings_of(request))["Model"] == "acme/own"
    assert command_of(request).startswith("memorymark analyze acme/own --gpu a10")


def test_a_custom_config_is_shown_by_its_architecture() -> None:
    request: dict[str, Any] = make_request(model="", config=CONFIG)
    settings = dict(settings_of(request))
    assert settings["Model"] == "own config"
    assert settings["Architecture"] == "bert, by its config.json"
    assert "Labels" not in settings
    assert "--config config.json" in command_of(request)


@pytest.mark.parametrize("model", ["bert", "of another version"])
def test_settings_of_the_first_version_are_shown_too(model: str) -> None:
    stored = {
        name: value
        for name, value in make_request().items()
        if name not in (*NEW_IN_WORKLOADS, "allocator", "global_batch_size")
    } | {"model": model}
    assert dict(settings_of(stored))["Sequence length"] == "128 tokens"
    assert "None" not in command_of(stored)
