"""Builds what published rows trained: by timm's name, or from a config of Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Batch = dict[str, torch.Tensor]

_LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24}
_BERT = {"model_type": "bert", "intermediate_size": 3072, "vocab_size": 30522}
_BERT_LARGE = _BERT | _LARGE | {"intermediate_size": 4096}
_GPT2 = {"model_type": "gpt2", "vocab_size": 50257}
_NO_DROPOUT = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
# MPT is GPT-2 with another vocabulary, one kernel for GELU and for attention, and no dropout.
_MPT = {
    "model_type": "gpt2",
    "vocab_size": 50368,
    "activation_function": "gelu",
    "n_positions": 8192,
    "attn_implementation": "sdpa",
    **_NO_DROPOUT,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert-base": _BERT,
    "bert-large": _BERT_LARGE,
    "ns-bert_large": _BERT_LARGE | {"is_decoder": True},
    "ns-gpt2_large": _GPT2 | {"n_embd": 1280, "n_head": 20, "n_layer": 36},
    "ns-gpt3_27": _GPT2 | {"n_embd": 2560, "n_head": 32, "n_layer": 32, "n_positions": 2048},
    "ns-gpt3_xl": _GPT2 | {"n_embd": 3072, "n_head": 24, "n_layer": 24, "n_positions": 2048},
    "nanogpt": _GPT2 | _NO_DROPOUT | {"activation_function": "gelu_pytorch_tanh"},
    "mpt-125m": _MPT | {"n_embd": 768, "n_head": 12, "n_layer": 12},
    "mpt-350m": _MPT | {"n_embd": 1024, "n_head": 16, "n_layer": 24},
    "mpt-760m": _MPT | {"n_embd": 1536, "n_head": 12, "n_layer": 24},
    "mpt-1b": _MPT | {"n_embd": 2048, "n_head": 16, "n_layer": 24},
    "mpt-3b": _MPT | {"n_embd": 2560, "n_head": 20, "n_layer": 32},
    "ns-opt_13": {
        "model_type": "opt",
        "hidden_size": 2048,
        "ffn_dim": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 24,
        "vocab_size": 50272,
        "word_embed_proj_dim": 2048,
    },
}
"""The sizes of each config; everything else is transformers' default, attention eager."""


@dataclass(frozen=True)
class Built:
    """A model with the batches it is trained on.

    Attributes:
        model: A model on the meta device, in training mode.
        make_batch: Returns the tensors of a batch of that many samples.
        loss: Returns the loss of a batch, a tensor without dimensions.
    """

    model: nn.Module
    make_batch: Callable[[int], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor]


def build(name: str, size: int) -> Built:
    """The model of a row.

    Args:
        name: ``timm:`` and a name of timm's; or a key of :data:`CONFIGS`, then a dash and the task:
            ``qa`` for question answering, ``lm`` for the next token.
        size: Pixels of a side, or tokens.
    """
    with torch.device("meta"):
        if name.startswith("timm:"):
            return _images(_timm(name.removeprefix("timm:"), size), size)
        config, task = name.rsplit("-", 1)
        return _text(CONFIGS[config], task, size)


def _timm(name: str, size: int) -> nn.Module:
    import timm

    # Published runs are older than fused attention.
    timm.layers.set_fused_attn(False)
    model: nn.Module = timm.create_model(name)
    if getattr(model, "pretrained_cfg", {}).get("input_size", (3, size))[1] != size:
        with suppress(TypeError):  # a network of convolutions takes any size
            model = timm.create_model(name, img_size=size)
    return model


def _images(model: nn.Module, size: int) -> Built:
    def make_batch(samples: int) -> Batch:
        return {
            "images": torch.empty(samples, 3, size, size),
            "labels": torch.zeros(samples, dtype=torch.long),
        }

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        scores = model(batch["images"])
        if isinstance(scores, tuple):  # distilled models give those of their second head too
            scores = scores[0]
        return nn.functional.cross_entropy(scores, batch["labels"])

    return Built(model.train(), make_batch, loss)


def _text(sizes: dict[str, Any], task: str, tokens: int) -> Built:
    import transformers

    attention = sizes.get("attn_implementation", "eager")
    config = transformers.AutoConfig.for_model(**sizes)
    config._attn_implementation = attention
    config.use_cache = False
    heads: dict[str, Any] = {
        "qa": transformers.AutoModelForQuestionAnswering,
        "lm": transformers.AutoModelForCausalLM,
    }
    model = heads[task].from_config(config, attn_implementation=attention)

    def make_batch(samples: int) -> Batch:
        # FlashAttention takes no mask.
        names = ("input_ids", "attention_mask") if attention == "eager" else ("input_ids",)
        whole = {name: torch.zeros(samples, tokens, dtype=torch.long) for name in names}
        if task == "qa":
            ends = {
                f"{end}_positions": torch.zeros(samples, dtype=torch.long)
                for end in ("start", "end")
            }
            return whole | ends
        return whole | {"labels": torch.zeros(samples, tokens, dtype=torch.long)}

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        found: torch.Tensor = model(**batch).loss
        return found

    return Built(model.train(), make_batch, loss)
