"""The small workloads that a self-check measures and predicts.

They differ in what decides memory and time: number formats, attention with and without a mask,
convolutions, adapters. All are built from configs that are installed, without weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..interface.workload import Workload
from ..models.presets import PRESETS


@dataclass(frozen=True)
class Checked:
    """One workload of the check at one batch size.

    Attributes:
        name: Display name.
        fields: Fields of the workload; the others take their defaults.
    """

    name: str
    fields: Mapping[str, Any]
    batch_size: int

    @property
    def workload(self) -> Workload:
        return Workload.parse(self.fields)


def workloads_for(kind: str) -> tuple[Checked, ...]:
    """Four workloads whose trials take a kind of device a few seconds each, with their start."""
    return ON_A_GPU if kind == "cuda" else ON_A_CPU


def _checked(name: str, preset: str, batch_size: int, config: Any, **fields: Any) -> Checked:
    """A preset with a changed config."""
    changed = PRESETS[preset].config() | config
    return Checked(name, {"model": name, "config": changed} | fields, batch_size)


_LORA = {"precision": "bf16-true", "lora_rank": 8}
_VOCABULARY = {"vocab_size": 8_000, "bos_token_id": 1, "eos_token_id": 2}

ON_A_GPU = (
    _checked(
        "BERT with 2 layers, bf16-mixed",
        "bert",
        64,
        {"num_hidden_layers": 2},
        precision="bf16-mixed",
        sequence_length=128,
    ),
    _checked(
        "GPT-2 with 2 layers, fp32", "gpt2", 32, {"n_layer": 2} | _VOCABULARY, sequence_length=128
    ),
    Checked("ResNet-18, fp32", {"model": "resnet-18", "optimizer": "sgd-momentum"}, 64),
    _checked(
        "Llama with 2 layers and LoRA, bf16-true",
        "llama-3.2-1b",
        16,
        {"num_hidden_layers": 2} | _VOCABULARY,
        sequence_length=256,
        **_LORA,
    ),
)

_NARROW = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}

ON_A_CPU = (
    _checked(
        "narrow BERT, bf16-mixed", "bert", 2, _NARROW, precision="bf16-mixed", sequence_length=32
    ),
    _checked(
        "narrow GPT-2, fp32",
        "gpt2",
        2,
        {"n_layer": 2, "n_embd": 64, "n_head": 4} | _VOCABULARY,
        sequence_length=32,
    ),
    Checked("ResNet-18, fp32", {"model": "resnet-18", "image_size": 64}, 2),
    _checked(
        "narrow Llama with LoRA, bf16-true",
        "llama-3.2-1b",
        2,
        _NARROW | {"num_key_value_heads": 2, "head_dim": 16} | _VOCABULARY,
        sequence_length=32,
        **_LORA,
    ),
)

LAUNCH_BOUND = _checked("narrow BERT, fp32", "bert", 2, _NARROW, sequence_length=32)
"""Each of its kernels takes a GPU less than its host takes to launch it, so a step is all launches:
it shows how long one launch takes, and is not among those that are compared."""
