"""Text-to-image models of diffusers: what their configs say, and that a trace equals real steps."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.models.diffusion import is_cached
from engine.models.presets import PRESETS
from engine.models.tasks import Task
from engine.models.tests.small_diffusion import SMALL_DIFFUSION, small
from engine.step.batches import make_batch
from engine.step.four_bits import FourBitLayout
from engine.step.training import build_model, prepare, training_step
from engine.traces.tracer import trace
from engine.tracing.recorder import MemoryRecorder

with_diffusers = pytest.mark.skipif(
    find_spec("diffusers") is None, reason="needs the optional package diffusers"
)


@pytest.mark.parametrize(
    ("name", "side", "tokens"), [("sd-1.5", 512, 77), ("sdxl", 1_024, 77), ("flux-dev", 1_024, 512)]
)
def test_images_and_captions_are_as_long_as_the_model_was_trained_with(
    name: str, side: int, tokens: int
) -> None:
    workload = Workload(name)
    assert workload.task is Task.TEXT_TO_IMAGE
    assert (workload.image_size, workload.sequence_length) == (side, tokens)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_size", 1_000),
        ("sequence_length", 128),
        ("attention", "eager"),
    ],
)
def test_what_a_model_does_not_take_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Workload("sdxl", **{field: value})
    assert field in caught.value.fields


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("denoiser", {"_class_name": "os.system"}),
        ("denoiser", None),
        ("vae", {"_class_name": "AutoencoderTiny"}),
        ("text_encoders", []),
        ("text_encoders", [{"architectures": ["AutoModel"]}]),
    ],
)
def test_a_config_names_only_classes_that_are_known(part: str, value: Any) -> None:
    config = PRESETS["sd-1.5"].config() | {part: value}
    with pytest.raises(InvalidInput, match=part):
        Workload("mine", config=config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("class_embed_type", "simple_projection"),
        ("num_class_embeds", 1000),
        ("encoder_hid_dim_type", "text_proj"),
        ("addition_embed_type", "image"),
        ("cross_attention_dim", [64, 128]),
    ],
)
def test_a_unet_that_reads_other_than_captions_is_refused(name: str, value: Any) -> None:
    """As those of AudioLDM, of the upscaler, of DeepFloyd IF and of Kandinsky."""
    config = PRESETS["sd-1.5"].config()
    denoiser = config["denoiser"] | {name: value}
    with pytest.raises(InvalidInput, match=rf"{name} is .*enter your training script"):
        Workload("mine", config=denoiser)


def test_a_denoisers_own_config_is_one_without_encoders() -> None:
    config = PRESETS["flux-dev"].config()["denoiser"]
    workload = Workload("mine", config=config | {"_diffusers_version": "0.30.0"})
    assert workload.task is Task.TEXT_TO_IMAGE
    assert is_cached(workload.preset.config())
    with pytest.raises(InvalidInput, match=r"WanTransformer3DModel.*training script"):
        Workload("mine", config={"_class_name": "WanTransformer3DModel"})


@with_diffusers
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sd-1.5", 859_520_964), ("sdxl", 2_567_463_684), ("flux-dev", 11_901_408_320)],
)
def test_the_denoiser_alone_is_trained(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = build_model(Workload(name))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == parameters


@with_diffusers
@pytest.mark.torch
@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("precision", "quantization", "adapters", "others"),
    [
        ("fp32", "none", torch.float32, torch.float32),
        ("bf16-mixed", "none", torch.bfloat16, torch.bfloat16),
        ("bf16-true", "none", torch.bfloat16, torch.bfloat16),
        ("fp16-mixed", "none", torch.float32, torch.float16),
        ("bf16-mixed", "nf4", torch.float32, torch.float32),
        ("bf16-true", "nf4", torch.float32, torch.bfloat16),
    ],
)
def test_adapters_and_what_is_frozen_have_the_formats_of_the_scripts(
    precision: str, quantization: str, adapters: torch.dtype, others: torch.dtype, device: str
) -> None:
    workload = small(
        "flux-dev",
        precision=precision,
        quantization=quantization,
        lora_rank=4,
        lora_targets="to_q,to_k,to_v,to_out.0",
    )
    with torch.device(device):
        model: Any = build_model(workload, predicting=True)
    trained = {n: one for n, one in model.named_parameters() if one.requires_grad}
    assert trained
    assert all("denoiser" in n and "lora" in n for n in trained)
    assert {one.dtype for one in trained.values()} == {adapters}
    norms = [p for n, p in model.denoiser.named_parameters() if "norm_q" in n]
    assert {one.dtype for one in norms} == {others}


@with_diffusers
@pytest.mark.torch
@pytest.mark.parametrize("name", SMALL_DIFFUSION)
def test_every_linear_layer_of_the_denoiser_is_quantized_and_none_of_the_encoders(
    name: str,
) -> None:
    workload = small(name, lora_rank=4, lora_targets="to_q", quantization="nf4")
    with torch.device("meta"):
        model: Any = build_model(workload, predicting=True)
    linear = [one for one in model.denoiser.modules() if isinstance(one, torch.nn.Linear)]
    plain = {id(one) for n, one in model.denoiser.named_modules() if "lora" in n}
    assert {type(one) for one in linear if id(one) not in plain} == {FourBitLayout}
    beside = [one for part in (model.vae, model.text_encoders) for one in part.modules()]
    assert not any(isinstance(one, FourBitLayout) for one in beside)


@with_diffusers
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_checkpointing": True},
        {"lora_rank": 4},
        {"lora_rank": 4, "gradient_checkpointing": True},
        {"cached": True},
    ],
    ids=lambda settings: next(iter(settings), "plain"),
)
@pytest.mark.parametrize("name", SMALL_DIFFUSION)
def test_a_trace_equals_real_steps(name: str, settings: dict[str, Any]) -> None:
    workload = small(name, **settings)
    training = prepare(workload, build_model(workload))
    recorder = MemoryRecorder(training, 3)
    batch = make_batch(workload, 3)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    traced = trace(workload, 3, None)
    assert (traced.events, traced.sizes) == (recorder.trace.events, recorder.trace.sizes)
