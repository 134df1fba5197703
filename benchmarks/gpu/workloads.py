"""The workloads of the benchmark: one half calibrates, the other is held out.

The halves are fixed here, before anything is measured, so that they cannot be chosen by the errors.
Both halves have every number format, eager attention, checkpointing, LoRA, decoders,
encoders and convolutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.models.presets import PRESETS


class Half(StrEnum):
    """Whether constants may be fitted to a workload's measurements."""

    CALIBRATION = "calibration"
    HELD_OUT = "held-out"


@dataclass(frozen=True)
class Benchmarked:
    """A workload of the benchmark.

    Attributes:
        name: Its name in results and ``--only``.
        fields: Fields of the workload; the others take their defaults.
        batch_sizes: A small and a medium one, measured without a memory limit.
    """

    name: str
    half: Half
    fields: Mapping[str, Any]
    batch_sizes: tuple[int, int]

    @cached_property
    def workload(self) -> Workload:
        return Workload.parse(self.fields)


def _calibrates(name: str, batch_sizes: tuple[int, int], **fields: Any) -> Benchmarked:
    return Benchmarked(name, Half.CALIBRATION, fields, batch_sizes)


def _held_out(name: str, batch_sizes: tuple[int, int], **fields: Any) -> Benchmarked:
    return Benchmarked(name, Half.HELD_OUT, fields, batch_sizes)


def _config(preset: str, **changed: Any) -> dict[str, Any]:
    return PRESETS[preset].config() | changed


_SMALL_VOCABULARY = {"vocab_size": 32_000, "bos_token_id": 1, "eos_token_id": 2}

FULL = (
    _calibrates("bert-fp32", (8, 64), model="bert"),
    _held_out("gpt2-fp32", (2, 6), model="gpt2"),
    _calibrates("resnet-fp32", (16, 128), model="resnet", optimizer="sgd-momentum"),
    _held_out("bert-bf16", (4, 32), model="bert", precision="bf16-mixed", sequence_length=512),
    _calibrates("gpt2-bf16", (2, 6), model="gpt2", precision="bf16-mixed"),
    _held_out("resnet-bf16", (16, 128), model="resnet", precision="bf16-mixed"),
    _calibrates(
        "bert-eager",
        (8, 48),
        model="bert",
        precision="bf16-mixed",
        attention="eager",
        sequence_length=256,
    ),
    _held_out(
        "gpt2-eager",
        (2, 8),
        model="gpt2",
        precision="fp16-mixed",
        attention="eager",
        sequence_length=512,
    ),
    _calibrates(
        "gpt2-checkpointing",
        (2, 8),
        model="gpt2",
        precision="bf16-mixed",
        gradient_checkpointing=True,
        optimizer="adamw-foreach",
    ),
    _held_out(
        "roberta-checkpointing",
        (8, 64),
        model="roberta",
        precision="bf16-mixed",
        gradient_checkpointing=True,
        optimizer="lion",
    ),
    # The next two have fewer layers and a smaller vocabulary: initialising the whole models would
    # take longer than their steps.
    _calibrates(
        "llama-lora",
        (1, 4),
        model="llama-3.2-1b, 4 layers",
        config=_config("llama-3.2-1b", num_hidden_layers=4, **_SMALL_VOCABULARY),
        precision="bf16-true",
        lora_rank=16,
        gradient_checkpointing=True,
        sequence_length=2048,
    ),
    _held_out(
        "qwen-lora",
        (1, 4),
        model="qwen3-0.6b, 8 layers",
        config=_config("qwen3-0.6b", num_hidden_layers=8, **_SMALL_VOCABULARY),
        precision="bf16-true",
        lora_rank=16,
        sequence_length=2048,
    ),
    _calibrates("vit-tf32", (8, 64), model="vit-b", precision="tf32"),
    _held_out("t5-tf32", (2, 16), model="t5-small", precision="tf32", optimizer="adafactor"),
    _calibrates(
        "distilbert-fp16",
        (16, 128),
        model="distilbert",
        precision="fp16-mixed",
        optimizer="sgd-momentum",
    ),
    _held_out("convnext-bf16", (16, 96), model="convnext-t", precision="bf16-mixed"),
)
"""In order of importance: every other check of the engine uses the first three."""

FIRST = 3
"""Number of them that are measured at every capacity before the others."""

_SMALL_ENCODER = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
_SMALL_DECODER = {
    "n_layer": 2,
    "n_embd": 64,
    "n_head": 4,
    "vocab_size": 1000,
    "bos_token_id": 999,
    "eos_token_id": 999,
}

QUICK = (
    _calibrates(
        "small-bert",
        (2, 8),
        model="small-bert",
        config=_config("bert", **_SMALL_ENCODER),
        sequence_length=32,
    ),
    _held_out(
        "small-gpt2",
        (2, 8),
        model="small-gpt2",
        config=_config("gpt2", **_SMALL_DECODER),
        precision="bf16-mixed",
        attention="eager",
        sequence_length=32,
    ),
)
"""Workloads for ``--quick``: steps of milliseconds, to try the benchmark on a CPU."""

BY_NAME = {one.name: one for one in (*FULL, *QUICK)}


def chosen(workloads: Iterable[Benchmarked], only: Iterable[str]) -> list[Benchmarked]:
    """The workloads with these names; all of them without any names.

    Raises:
        InvalidInput: If a name is unknown.
    """
    known = {one.name: one for one in workloads}
    wanted = list(only)
    if unknown := [name for name in wanted if name not in known]:
        message = f"no workload {', '.join(unknown)}; choose from {', '.join(known)}"
        raise InvalidInput({"only": message})
    return [one for name, one in known.items() if not wanted or name in wanted]
