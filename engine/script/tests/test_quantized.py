"""Models that a script loads in 4 or 8 bits: their layouts, and whole steps of bitsandbytes'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from engine.core.errors import EngineError, NotPredictable
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.devices.cuda_device import on_gpu
from engine.script.libraries import quantized
from engine.script.machine import Machine, pretended_machine
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script
from engine.step.eight_bits import EightBitLayout
from engine.step.four_bits import FourBitLayout

FOUR_BITS = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": "bfloat16",
}

TRAINED = """
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def make_step(batch_size):
    bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                              bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{dtype})
    model = AutoModelForCausalLM.from_pretrained({name!r}, quantization_config=bits,
                                                 device_map={{"": "cpu"}}, dtype=torch.bfloat16)
    {prepared}
    lora = LoraConfig(r=4, target_modules={targets}, task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).train()
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    ids = torch.randint(0, 100, (batch_size, 16))
    def step():
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small pretrained model in a folder of its own."""
    config = LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def classes() -> Iterator[SimpleNamespace]:
    """Those of bitsandbytes that a trace needs, whether it is installed or not."""
    names = ("Linear4bit", "Linear8bitLt")
    made = SimpleNamespace(**{name: type(name, (torch.nn.Linear,), {}) for name in names})
    with (
        patch.object(quantized, "_bitsandbytes", lambda: made),
        patch("importlib.metadata.version", lambda _: "1.0.0"),
        patch("transformers.modeling_utils.is_bitsandbytes_available", lambda *_: True),
    ):
        yield made


def loaded(saved: Path, bits: dict[str, Any]) -> tuple[Any, Machine]:
    """The model that a script gets on a machine with an A10."""
    from transformers import AutoModelForCausalLM

    with pretended_machine(A10) as machine:
        model = AutoModelForCausalLM.from_pretrained(saved, quantization_config=bits)
    return model, machine


@pytest.mark.usefixtures("classes")
def test_linear_layers_but_the_head_are_in_4_bits_on_the_gpu(saved: Path) -> None:
    model, _ = loaded(saved, FOUR_BITS)
    assert model.is_loaded_in_4bit
    assert model.is_quantized
    found = {name for name, layer in model.named_modules() if isinstance(layer, FourBitLayout)}
    assert len(found) == 2 * 7
    assert type(model.lm_head) is torch.nn.Linear


@pytest.mark.usefixtures("classes")
def test_a_quantized_model_is_on_the_gpu_by_default(saved: Path) -> None:
    from transformers import AutoModelForCausalLM

    with pretended_machine(A10):
        model = AutoModelForCausalLM.from_pretrained(saved, quantization_config=FOUR_BITS)
        devices = {tensor.device.type for tensor in (*model.parameters(), *model.buffers())}
    assert devices == {"cuda"}


def test_a_script_finds_the_classes_that_it_looks_for(
    saved: Path, classes: SimpleNamespace
) -> None:
    model, _ = loaded(saved, FOUR_BITS)
    layer = model.model.layers[0].mlp.up_proj
    assert isinstance(layer, classes.Linear4bit)
    assert (layer.compute_dtype, layer.weight.quant_type) == (torch.bfloat16, "nf4")


@pytest.mark.usefixtures("classes")
def test_modules_that_the_script_leaves_out_are_kept_whole(saved: Path) -> None:
    model, _ = loaded(saved, {**FOUR_BITS, "llm_int8_skip_modules": ["mlp", "lm_head"]})
    found = {name for name, layer in model.named_modules() if isinstance(layer, FourBitLayout)}
    assert len(found) == 2 * 4


@pytest.mark.usefixtures("classes")
def test_8_bits_say_what_is_assumed_of_outliers(saved: Path) -> None:
    model, machine = loaded(saved, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert any(isinstance(layer, EightBitLayout) for layer in model.modules())
    assert any("outlier" in caveat for caveat in machine.caveats)


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize(
    ("bits", "says"),
    [
        ({"quant_method": "gptq", "bits": 4}, "quantized with gptq .* --quantization nf4"),
        ({**FOUR_BITS, "bnb_4bit_quant_storage": "bfloat16"}, "--parallelism fsdp"),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 0.0},
            "a threshold of 6",
        ),
    ],
)
def test_bits_that_are_not_known_are_refused_with_the_command_that_works(
    saved: Path, bits: dict[str, Any], says: str
) -> None:
    with pytest.raises(NotPredictable, match=says):
        loaded(saved, bits)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("prepared", ["", "model = prepare_model_for_kbit_training(model)"])
@pytest.mark.parametrize(
    "targets", ["'all-linear'", "['q_proj', 'v_proj']", "'all-linear', use_dora=True"]
)
def test_a_step_of_qlora_equals_that_of_bitsandbytes_to_the_byte(
    folder: Path, saved: Path, dtype: str, prepared: str, targets: str
) -> None:
    pytest.importorskip("bitsandbytes")
    text = TRAINED.format(name=str(saved), dtype=dtype, prepared=prepared, targets=targets)
    factory = written(folder, text)
    with seen_by_the_recorder():
        measured = cpu.run_trial(TrialOrder(factory, 4)).peak_allocated_bytes
    peak, _ = trace_script(factory, 4, None).peak_by_category()
    assert peak == measured


@contextmanager
def seen_by_the_recorder() -> Iterator[None]:
    """bitsandbytes' products in PyTorch's operators, so that what lives within them is counted."""
    from bitsandbytes.backends.default.ops import _gemm_4bit_default_impl
    from bitsandbytes.functional import quantize_4bit

    quantize_4bit(torch.ones(64, 64), compress_statistics=True)  # it keeps a table from then on
    with patch.object(
        torch.ops.bitsandbytes, "gemm_4bit", SimpleNamespace(default=_gemm_4bit_default_impl)
    ):
        yield


def test_without_bitsandbytes_it_says_what_to_install() -> None:
    with (
        patch.dict("sys.modules", {"bitsandbytes": None, "bitsandbytes.nn": None}),
        pytest.raises(EngineError, match="pip install bitsandbytes"),
    ):
        quantized._bitsandbytes()


@pytest.mark.usefixtures("classes")
def test_a_model_in_8_bits_is_put_on_the_gpu_though_it_lets_nobody_move_it(saved: Path) -> None:
    """transformers 4 refuses ``to`` of such a model, which is there as it is loaded."""

    def refused(*_: Any) -> None:
        raise ValueError("`.to` is not supported for `8-bit` bitsandbytes models")

    with patch.object(PreTrainedModel, "to", refused):
        model, _ = loaded(saved, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert on_gpu(next(model.parameters()))
    assert model.hf_device_map == {"": 0}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"load_in_8bit": True}, {"load_in_8bit": True}),
        ({"load_in_8bit": False}, None),
        ({"quantization_config": 1, "load_in_4bit": False}, 1),
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        ),
    ],
)
def test_transformers_4_takes_bits_by_keyword(given: dict[str, Any], found: Any) -> None:
    arguments = {**given, "output_attentions": True}
    with patch.object(quantized, "VERSION", (4, 46)):
        settings = quantized.given_quantization(arguments)
    assert arguments == {"output_attentions": True}
    if isinstance(found, dict):
        assert found.items() <= settings.to_dict().items()
    else:
        assert settings == found


def test_transformers_5_leaves_them_to_the_model_which_refuses_them() -> None:
    arguments = {"load_in_8bit": True}
    with patch.object(quantized, "VERSION", (5, 0)):
        assert quantized.given_quantization(arguments) is None
    assert arguments == {"load_in_8bit": True}
