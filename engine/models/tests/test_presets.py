"""Every preset: its size, its tasks, and that its trace equals a real step."""

from __future__ import annotations

from itertools import cycle
from unittest.mock import patch

import pytest
import torch

from engine.core.choices import Precision
from engine.core.errors import EngineError
from engine.interface.workload import Workload
from engine.models.config import parse_config
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import Task
from engine.step.batches import make_batch
from engine.step.building import new_model
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import small_workload
from engine.tests.small import made_small
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace
from engine.tracing.every_batch import NotAffine
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder

small = pytest.mark.usefixtures("small_models")
every_preset = pytest.mark.parametrize("name", PRESETS)
ARCHITECTURES = {
    preset.config()["model_type"]: name
    for name, preset in reversed(PRESETS.items())
    if not preset.package  # tried apart
}
"""The first preset of each."""
ONE_BY_ONE = ("detr",)
"""Their loss goes through the images of a batch one by one."""
EVERY_TASK = [
    (name, task)
    for name in ARCHITECTURES.values()
    for task in PRESETS[name].tasks
    if name in ("roberta", "gpt2", "deberta-v3") or task is PRESETS[name].task
]


@pytest.mark.parametrize(("name", "package"), [("sdxl", "diffusers"), ("timm/resnet50", "timm")])
def test_without_its_package_the_error_says_what_to_install(name: str, package: str) -> None:
    with (
        patch("engine.models.model.find_spec", lambda name: None),
        pytest.raises(EngineError, match=rf"pip install 'memorymark\[{package}\]'"),
    ):
        new_model(Workload(name))


@every_preset
def test_a_preset_has_as_many_parameters_as_its_source_says(name: str) -> None:
    if package := PRESETS[name].package:
        pytest.importorskip(package)
    with torch.device("meta"):
        model = new_model(Workload(name))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == pytest.approx(PRESETS[name].parameters, rel=0.01)


@every_preset
def test_a_presets_config_passes_the_checks_for_untrusted_ones(name: str) -> None:
    config = PRESETS[name].config()
    assert parse_config(config) == config


@every_preset
def test_a_preset_names_the_sources_of_its_parameter_count_and_config(name: str) -> None:
    preset = PRESETS[name]
    assert preset.source
    assert preset.config_source
    assert preset.hub_id.count("/") == 1
    assert preset.task in preset.tasks
    for limits in (preset.sequence_length, preset.image_size):
        assert limits is None or limits.smallest <= limits.default <= limits.largest


@pytest.mark.parametrize("model_type", ["t5", "mt5", "umt5"])
def test_a_t5_has_a_head_of_its_own_where_its_config_says_so(model_type: str) -> None:
    config = made_small(PRESETS["t5-small"].config()) | {"model_type": model_type}

    def count(**fields: bool) -> int:
        model = new_model(Workload("some-t5", config=config | fields))
        return sum(parameter.numel() for parameter in model.parameters())

    head = config["vocab_size"] * config["d_model"]
    assert count(tie_word_embeddings=False) == count() + head


def test_a_presets_hub_id_also_finds_it() -> None:
    assert Workload("google-bert/bert-base-uncased") == Workload("bert")


@pytest.mark.parametrize(
    ("name", "limits"), [("roberta", (1, 512)), ("clip", (1, 77)), ("whisper", (1, 448))]
)
def test_a_presets_positions_limit_its_text(name: str, limits: tuple[int, int]) -> None:
    found = PRESETS[name].sequence_length
    assert found is not None
    assert (found.smallest, found.largest) == limits


@pytest.mark.slow
@small
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(name, precision, marks=() if precision is usual else pytest.mark.full)
        for name, usual in zip(
            ARCHITECTURES.values(), cycle((Precision.FP32, Precision.BF16_MIXED))
        )
        for precision in (Precision.FP32, Precision.BF16_MIXED, Precision.BF16_TRUE)
    ]
    # These two clamp overflows in fp16; for all others fp16 is like bf16.
    + [("t5-base", Precision.FP16_MIXED), ("whisper", Precision.FP16_MIXED)],
)
def test_a_few_traces_give_every_batch_size(name: str, precision: Precision) -> None:
    workload = small_workload(name, precision=precision)
    behaviour = cuda_behaviour(8.6)
    if name in ONE_BY_ONE:
        with pytest.raises(NotAffine):
            trace_every_batch_size(workload, behaviour)
        return
    traces = trace_every_batch_size(workload, behaviour)
    assert traces.at(11) == trace(workload, 11, behaviour)


@pytest.mark.slow
@small
@pytest.mark.parametrize(("name", "task"), EVERY_TASK)
def test_the_peak_of_every_task_is_equal_to_the_byte(name: str, task: Task) -> None:
    workload = small_workload(name, task=task)
    training = prepare(workload, build_model(workload))
    recorder = MemoryRecorder(training, 3)
    batch = make_batch(workload, 3)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    predicted = trace(workload, 3, None).peak_by_category()[0]
    assert predicted == recorder.trace.peak_by_category()[0]


@pytest.mark.slow
@small
@pytest.mark.parametrize("name", ["vit-b", "swin-t", "convnext-t", "resnet-18", "clip"])
@pytest.mark.parametrize("size", ["smallest", "odd"])
def test_images_of_any_size_within_the_bounds_are_trained_on(name: str, size: str) -> None:
    limits = PRESETS[name].image_size
    assert limits is not None
    side = limits.smallest if size == "smallest" else limits.smallest + 17
    assert trace(small_workload(name, image_size=side), 2, None).sizes


def test_a_preset_is_plain_data() -> None:
    assert isinstance(PRESETS["bert"], Preset)
    assert PRESETS["bert"].config() is not PRESETS["bert"].config()
