"""Models of timm: named without the package, and traced with it."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from engine.cli.main import main
from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.models import timm_models
from engine.models.config import parse_config
from engine.models.presets import named
from engine.models.tasks import Task
from engine.step.batches import make_batch
from engine.step.building import new_model
from engine.step.training import build_model, prepare, training_step
from engine.traces.tracer import trace
from engine.tracing.recorder import MemoryRecorder

with_timm = pytest.mark.skipif(
    not (find_spec("timm") and find_spec("torchvision")),
    reason="timm needs torchvision built for this torch, which requirements.txt leaves out",
)


def test_a_model_is_named_with_or_without_the_tag_of_its_weights() -> None:
    tagged, plain = Workload("timm/resnet50.a1_in1k"), Workload("timm/resnet50")
    assert tagged.preset.config() == plain.preset.config()
    assert (plain.task, plain.image_size, plain.label_count) == (
        Task.IMAGE_CLASSIFICATION,
        224,
        1_000,
    )


@pytest.mark.parametrize("name", ["timm/vit_base_patch16_384", "timm/swin_tiny_patch4_window7_224"])
def test_a_model_with_positions_reads_images_of_its_own_size_only(name: str) -> None:
    own = int(name[-3:])
    assert Workload(name).image_size == own
    with pytest.raises(InvalidInput) as caught:
        Workload(name, image_size=own + 32)
    assert str(own) in caught.value.fields["image_size"]


def test_an_unknown_model_is_refused_with_similar_names() -> None:
    with pytest.raises(InvalidInput) as caught:
        Workload("timm/resnet5O")
    assert "resnet50" in caught.value.fields["model"]


def test_a_refused_model_says_why() -> None:
    name, reason = next(iter(timm_models.listed().refused.items()))
    with pytest.raises(InvalidInput, match=reason):
        Workload(f"timm/{name}")


def test_models_are_found_by_a_part_of_their_names() -> None:
    found = [model.name for model in named("ResNet-50")] + [
        model.name for model in named("resnet50")
    ]
    assert {"resnet", "timm/resnet50", "timm/wide_resnet50_2"} <= set(found)
    assert len(named("timm/")) == len(timm_models.listed().sides)


def test_the_command_line_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "efficientnet_b0", "--json"]) == 0
    models = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert models["timm/efficientnet_b0"]["image_size"]["default"] == 224
    assert main(["models", "efficientnet_b0"]) == 0
    assert "timm/efficientnet_b0" in capsys.readouterr().out


def test_a_config_as_timm_writes_it_gives_the_model() -> None:
    written = {
        "architecture": "efficientnet_b0",
        "num_classes": 10,
        "pretrained_cfg": {"input_size": [3, 224, 224], "custom_load": False},
    }
    workload = Workload("mine", config=written)
    assert workload.label_count == 10
    assert workload.config == parse_config(written)
    assert workload.preset.package == "timm"


def test_attention_is_timms_own() -> None:
    with pytest.raises(InvalidInput, match="timm"):
        Workload("timm/vit_small_patch16_224", attention="eager")  # type: ignore[arg-type]  # as written


@with_timm
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "parameters"),
    # ResNet50_Weights, ConvNeXt_Tiny_Weights and Swin_T_Weights of torchvision, num_params
    [
        ("resnet50", 25_557_032),
        ("convnext_tiny", 28_589_128),
        ("swin_tiny_patch4_window7_224", 28_288_354),
    ],
)
def test_a_model_has_as_many_parameters_as_torchvisions(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = new_model(Workload(f"timm/{name}"))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@with_timm
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_checkpointing": True}, {"frozen_backbone": True}, {"lora_rank": 4}],
    ids=lambda settings: next(iter(settings), "plain"),
)
@pytest.mark.parametrize(
    "name",
    ["test_resnet", "test_vit", "test_convnext", "test_efficientnet", "mobilenetv3_small_050"],
)
def test_a_trace_equals_real_steps(name: str, settings: dict[str, bool]) -> None:
    workload = Workload(f"timm/{name}", label_count=10, **settings)  # type: ignore[arg-type]  # flags
    training = prepare(workload, build_model(workload))
    recorder = MemoryRecorder(training, 3)
    batch = make_batch(workload, 3)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    traced = trace(workload, 3, None)
    assert (traced.events, traced.sizes) == (recorder.trace.events, recorder.trace.sizes)
