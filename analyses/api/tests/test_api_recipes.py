"""Recipes of training frameworks over the REST API."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from analyses.models import Analysis

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"
RECIPE = """
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 2
output_dir: out
"""


def test_a_recipe_stands_for_the_fields_that_it_sets(api: APIClient) -> None:
    response = api.post(URL, {"recipe": RECIPE, "gpu": "a10"}, format="json")
    assert response.status_code == 201
    request = Analysis.objects.get().request
    assert (request["model"], request["lora_rank"]) == ("llama-3.2-1b", 8)
    assert request["current_batch_size"] == 2
    told = response.json()["recipe"]
    assert (told["framework"], told["release"]) == ("axolotl", "0.18.0")
    assert told["not_used"] == ["output_dir"]
    assert told["assumed"]["optimizer"] == "adamw_torch_fused"


def test_fields_beside_a_recipe_win(api: APIClient) -> None:
    body = {"recipe": RECIPE, "gpu": "a10", "current_batch_size": 4, "framework": "axolotl"}
    response = api.post(URL, body, format="json")
    assert Analysis.objects.get().current_batch_size == 4
    assert response.json()["recipe"]["given_beside"] == {"current_batch_size": "micro_batch_size"}


def test_a_prediction_takes_a_recipe(api: APIClient) -> None:
    response = api.post("/api/v1/predict/?wait=0", {"recipe": RECIPE, "gpu": "a10"}, format="json")
    assert response.status_code == 202
    assert response.json()["request"]["sequence_length"] == 1024
    assert response.json()["recipe"]["framework"] == "axolotl"


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"recipe": RECIPE + "sequence_leng: 1\n"}, "recipe.sequence_leng", "has no such key"),
        ({"recipe": RECIPE + "torch_compile: true\n"}, "recipe.torch_compile", "line 9: compiled"),
        ({"recipe": "[1"}, "recipe", "this is not YAML"),
        ({"recipe": 5}, "recipe", "enter the text of a recipe"),
        ({"recipe": RECIPE, "framework": "nemo"}, "framework", "is not read"),
        ({"recipe": RECIPE, "framework": ["trl"]}, "recipe", "enter the text of a recipe"),
        ({"recipe": RECIPE, "lora_ranks": 5}, "lora_ranks", "unknown field"),
        ({"recipe": RECIPE, "lora_rank": 0}, "lora_rank", "whole number"),
        ({"recipe": RECIPE + "deepspeed: zero.json\n"}, "recipe.deepspeed", "which is not here"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(
    api: APIClient, body: dict[str, object], field: str, message: str
) -> None:
    response = api.post(URL, {"gpu": "a10", **body}, format="json")
    assert response.status_code == 400
    assert message in response.json()["errors"][field][0]
    assert not Analysis.objects.exists()


def test_half_of_a_surrogate_pair_is_no_yaml(api: APIClient) -> None:
    body = '{"gpu": "a10", "recipe": "a: \\ud800"}'
    response = api.generic("POST", URL, body, content_type="application/json")
    assert response.status_code == 400
    assert "recipe" in response.json()["errors"]


def test_a_recipe_may_not_be_large(api: APIClient) -> None:
    response = api.post(URL, {"recipe": "a: " + "x" * 300_000, "gpu": "a10"}, format="json")
    assert "larger than 256 KiB" in response.json()["errors"]["recipe"][0]
