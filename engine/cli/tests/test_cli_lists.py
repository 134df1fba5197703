"""The lists of the command line: models, the types that a config may have, devices."""

from __future__ import annotations

import json

import pytest

from engine.cli.main import main
from engine.gpus import GPUS
from engine.models.coverage import checked_with
from engine.models.presets import PRESETS


def test_models_in_json_have_their_input_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in models] == list(PRESETS)
    assert models[0]["sequence_length"] == {"default": 128, "smallest": 1, "largest": 512}


def test_all_models_are_model_types_with_what_they_are_trained_for_or_why_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--all", "--json"]) == 0
    listed = {row["model_type"]: row for row in json.loads(capsys.readouterr().out)}
    assert "causal-language-modelling" in listed["llama"]["tasks"]
    assert "natten" in listed["dinat"]["refused"]["image-classification"]
    assert main(["models", "--all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"of {len(listed)} model types" in shown
    assert f"with transformers {checked_with()}." in shown


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("gemma3n", "Hugging Face ID or the config of a model with one of these types: "),
        ("nothing-like-it", "and no model type that a config may have."),
    ],
)
def test_a_name_that_no_preset_has_is_looked_for_among_model_types(
    part: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", part]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert told in shown
    assert ("gemma3n_text" in shown) is (part == "gemma3n")


def test_devices_in_json_have_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == 0
    devices = {device["name"]: device for device in json.loads(capsys.readouterr().out)}
    assert list(devices) == list(GPUS)
    assert devices["a10"]["usable_bytes"] == GPUS["a10"].usable_bytes
    assert devices["a10"]["sources"]["total_bytes"]
