"""The training loops of xMem's evaluation, as a script: it is traced as any other, never run.

::

    memorymark predict benchmarks/xmem_train.py --batch-flag=--batch-size --batch-size 30 \
        --gpu rtx-3090 -- --model EleutherAI/gpt-neo-125M --optimizer SGD

Written after their description and code (``exp/trainer`` of Stone-ResearchLife/xMem). What decides
the memory is kept: four steps in fp32, PyTorch's default optimizers, where gradients are dropped,
and that outputs live on until those of the next step are there. Weights are random, images noise.
Their text is not here, so every batch is as long as the longest can be.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch

STEPS = 4
PIXELS, CLASSES = 86, 10
"""CIFAR-10's images, enlarged. Its classes are fewer than most of these networks distinguish."""
MAX_LENGTH = 128

NETWORKS: dict[str, tuple[str, dict[str, int]]] = {
    "VGG16": ("vgg16", {}),
    "ResNet101": ("resnet101", {}),
    "MobileNetV2": ("mobilenet_v2", {}),
    "MobeNetV3Small": ("mobilenet_v3_small", {"num_classes": CLASSES}),
    "ConvNeXtTiny": ("convnext_tiny", {}),
    "RegNetX400MF": ("regnet_x_400mf", {}),
}
"""torchvision's function and its arguments, by the name in ``data/xmem.csv``."""

_GPT = {"vocab_size": 50257, "bos_token_id": 50256, "eos_token_id": 50256}
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "EleutherAI/gpt-neo-125M": _GPT | {
        "model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12,
        "attention_types": [[["global", "local"], 6]], "window_size": 256,
        "max_position_embeddings": 2048,
    },
    "distilbert/distilgpt2": _GPT | {"model_type": "gpt2", "n_layer": 6},
    "cerebras/Cerebras-GPT-111M": _GPT | {
        "model_type": "gpt2", "n_layer": 10, "n_positions": 2048, "n_inner": 3072,
        "activation_function": "gelu",
    },
    "facebook/opt-125m": {
        "model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
        "num_attention_heads": 12, "word_embed_proj_dim": 768, "vocab_size": 50272,
        "max_position_embeddings": 2048, "dropout": 0.1, "attention_dropout": 0.0,
        "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2,
    },
    "T5-small": {
        "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
        "num_heads": 8, "vocab_size": 32128, "decoder_start_token_id": 0, "pad_token_id": 0,
        "eos_token_id": 1,
    },
}  # fmt: skip
"""The fields of each model's ``config.json`` that decide its memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=[*NETWORKS, *LANGUAGE_MODELS])
    parser.add_argument("--optimizer", required=True, help="a class of torch.optim")
    parser.add_argument("--zero-grad", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    train = train_network if options.model in NETWORKS else train_language_model
    train(options.model, options.optimizer, options.zero_grad, options.batch_size)


def train_network(name: str, optimizer_name: str, zero_grad: int, batch_size: int) -> None:
    """Four steps of an image classifier.

    Args:
        name: A key of :data:`NETWORKS`.
        optimizer_name: A class of ``torch.optim``.
        zero_grad: Gradients are dropped before the batch is loaded (0), before the backward pass
            (1) or after the optimizer's step (2).
        batch_size: Images per step.
    """
    model = network(name).to("cuda").train()
    optimizer = make_optimizer(optimizer_name, model)
    criterion = torch.nn.CrossEntropyLoss()
    for images, labels in _images(batch_size):
        if zero_grad == 0:
            optimizer.zero_grad()
        images, labels = images.to("cuda"), labels.to("cuda")
        outputs = model(images)
        loss = criterion(outputs, labels)
        if zero_grad == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if zero_grad == 2:
            optimizer.zero_grad()


def train_language_model(name: str, optimizer_name: str, zero_grad: int, batch_size: int) -> None:
    """Four steps of a language model; as :func:`train_network`, of :data:`LANGUAGE_MODELS`."""
    model = language_model(name).to("cuda").train()
    optimizer = make_optimizer(optimizer_name, model)
    for batch in _texts(batch_size, model.config.vocab_size):
        if zero_grad == 0:
            optimizer.zero_grad()
        batch = {name: tensor.to("cuda") for name, tensor in batch.items()}
        outputs = model(**batch)
        if zero_grad == 1:
            optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()
        if zero_grad == 2:
            optimizer.zero_grad()


def network(name: str) -> torch.nn.Module:
    """One of :data:`NETWORKS`."""
    import torchvision

    function, fields = NETWORKS[name]
    made: torch.nn.Module = getattr(torchvision.models, function)(**fields)
    return made


def language_model(name: str) -> Any:
    """One of :data:`LANGUAGE_MODELS`."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.for_model(**LANGUAGE_MODELS[name])
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    return auto_class.from_config(config)


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """An optimizer of PyTorch with its defaults."""
    optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3)
    return optimizer


def _images(batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(STEPS):
        yield (
            torch.rand(batch_size, 3, PIXELS, PIXELS),
            torch.zeros(batch_size, dtype=torch.long),
        )


def _texts(batch_size: int, vocabulary: int) -> Iterator[dict[str, torch.Tensor]]:
    """Lines of text, all but the longest padded."""
    for _ in range(STEPS):
        token_ids = torch.randint(0, vocabulary, (batch_size, MAX_LENGTH))
        mask = torch.ones(batch_size, MAX_LENGTH, dtype=torch.long)
        mask[1:, -1] = 0
        yield {"input_ids": token_ids, "attention_mask": mask, "labels": token_ids.clone()}


if __name__ == "__main__":
    main()
