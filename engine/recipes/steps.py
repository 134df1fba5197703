"""Rules that frameworks share, since they hand the same settings to transformers and peft."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.adapters import Adapter
from ..core.choices import Attention, Batching, CrossEntropy, Quantization
from ..core.errors import InvalidInput
from ..core.optimizers import Optimizer
from ..features.adapters import ALL_LINEAR, is_pattern
from ..models.presets import Preset, find_model
from .settings import Settings

ATTENTION = {
    "sdpa": Attention.SDPA,
    "eager": Attention.EAGER,
    "flex_attention": Attention.FLEX,
    "flash_attention_2": Attention.FLASH,
    "flash_attention_3": Attention.FLASH,
    "flash_attn": Attention.FLASH,
    "kernels-community/flash-attn": Attention.FLASH,
    "kernels-community/flash-attn2": Attention.FLASH,
    "kernels-community/flash-attn3": Attention.FLASH,
    "kernels-community/vllm-flash-attn3": Attention.FLASH,
}
"""Attentions by transformers' names (``attn_implementation``) and those of kernels on the Hub."""

OPTIMIZERS = {
    spec.trainer: one
    for one in Optimizer
    if one is not Optimizer.SGD_MOMENTUM and (spec := one.spec).trainer is not None
} | {
    "adamw_hf": Optimizer.ADAMW_FOREACH,
    "adamw_8bit": Optimizer.ADAMW_8BIT,
    "adamw_torch_8bit": Optimizer.ADAMW_8BIT,
    "paged_adamw": Optimizer.PAGED_ADAMW,
    "lion": Optimizer.LION,
}
"""Optimizers by ``OptimizerNames`` of transformers' Trainer (``training_args.py``). Its ``sgd`` has
no momentum unless ``optim_args`` says so."""

_HARMLESS_ARGUMENTS = {"beta1", "beta2", "betas", "eps", "lr", "weight_decay"}

PEFT_TARGETS = {
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"),
        "q_proj,v_proj",
    ),
    "gpt2": "c_attn",
    "t5": "q,v",
}
"""Modules that peft adapts where none are named, by model type
(``TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`` in ``peft/utils/constants.py``)."""

AS_ORPO = (
    "CPO and SimPO are predicted as ORPO: TRL's trainers (cpo_trainer.py, orpo_trainer.py) and "
    "LLaMA-Factory's score pairs by the same tensors of logits for all of them."
)
BF16_UNDER_AUTOCAST = (
    "Weights in bf16 that train under autocast are predicted as bf16-true: traced steps of a "
    "Llama took as much, but 12% less with LoRA where no layer is checkpointed."
)
_TORCHAO = (
    "torchao's 8-bit AdamW is predicted as that of bitsandbytes, which keeps as much: two bytes "
    "for each weight, and a scale for 256. How fast it steps is not known."
)
UNSLOTH = (
    "Unsloth's own kernels are not known here: the answer is for transformers and peft. Unsloth's "
    "README claims 50 to 80% less memory and 1.5 to 2.2 times the speed, so both are far off on "
    "the safe side (github.com/unslothai/unsloth)."
)
_LIGER_LAYERS = (
    "Its SwiGLU does not keep silu's output (2 bytes × intermediate size for each token and layer) "
    "and its RMSNorm no fp32 copy (4 bytes × hidden size): without gradient checkpointing the "
    "answer is too high by that."
)
LIGER = f"Of Liger's kernels the loss is predicted. {_LIGER_LAYERS}"
LIGER_WITHOUT_LOSS = (
    "Of Liger's kernels none is predicted: training of this kind does not use its loss. "
    f"{_LIGER_LAYERS}"
)
LIGER_OF_ANSWERS = (
    "Liger's loss of answers keeps no logits of them, and how much its parts take is not known "
    "here; take it out for an answer that is too high by these logits"
)


def note_cpo(settings: Settings) -> None:
    """Note what CPO, or SimPO as one of its losses, is predicted as."""
    settings.note(AS_ORPO)
    if not settings.value("cpo_alpha"):
        settings.note(
            "With cpo_alpha 0 the likelihood of the chosen answers is left out: the answer is too "
            "high by copies of their logits."
        )


def set_attention(settings: Settings, name: str | None, key: str) -> None:
    """Set the attention by its name in transformers; without one, transformers takes sdpa."""
    if name is None:
        return
    found = ATTENTION.get(name)
    if found is None:
        settings.refuse(key, f"{name} is not predicted; choose one of {', '.join(ATTENTION)}")
    else:
        settings.set("attention", found, key)


def set_optimizer(
    settings: Settings,
    name: str | None,
    key: str,
    more: Mapping[str, Optimizer] | None = None,
) -> Optimizer | None:
    """Set the optimizer by its name in transformers' Trainer, or of the framework itself.

    Args:
        settings: The recipe's.
        name: Its name.
        key: The key that has it.
        more: Names that only this framework knows.
    """
    known = OPTIMIZERS | dict(more or {})
    found = known.get(name or "")
    if found is None:
        why = f"{name} is not predicted" if name else "it is empty"
        settings.refuse(key, f"{why}; choose one of {', '.join(sorted(known))}")
    else:
        settings.set("optimizer", found, key)
    if name == "adamw_torch_8bit":
        settings.note(_TORCHAO)
    return found


def check_optimizer_arguments(settings: Settings, key: str) -> None:
    """Refuse arguments of an optimizer that change its state; its betas do not."""
    if key not in settings:
        return
    value = settings.value(key)
    named = value if isinstance(value, dict) else re.findall(r"(\w+)\s*=", str(value))
    if odd := sorted({str(name) for name in named} - _HARMLESS_ARGUMENTS):
        settings.refuse(
            key,
            f"what {', '.join(odd)} does to the optimizer's memory is not predicted; take it out "
            "and choose the optimizer by --optimizer and --optimizer-rank",
        )


def set_peft(
    settings: Settings,
    *,
    rank: str,
    targets: str,
    saved: str,
    dora: str,
    all_linear: bool = False,
    pattern: str = "",
    one_is_text: bool = False,
) -> None:
    """Set LoRA as a framework hands it to peft, which takes one text as a pattern.

    Args:
        settings: The recipe's.
        rank: The key that has the rank.
        targets: The key that has the modules to adapt.
        saved: The key that has the modules to train whole.
        dora: The key that turns on DoRA.
        all_linear: Whether ``targets`` only says that each linear layer is adapted.
        pattern: Another key, which has a pattern and wins where it is set.
        one_is_text: Whether a list of one name is handed on as a text.
    """
    if pattern and pattern in settings:
        targets = pattern
    written = settings.value(targets)
    if one_is_text and isinstance(written, list) and len(written) == 1:
        written = written[0]
    if not all_linear and isinstance(written, str) and is_pattern(written):
        settings.set("lora_rank", settings.value(rank), rank)
        settings.set("lora_targets", written, targets)
    else:
        listed = [ALL_LINEAR] if all_linear else settings.listed(targets)
        set_lora(
            settings, rank=settings.value(rank), rank_key=rank, targets=listed, targets_key=targets
        )
    if whole := settings.listed(saved):
        settings.set("modules_to_save", ",".join(whole), saved)
    if settings.is_on(dora):
        settings.set("adapter", Adapter.DORA, dora)


def set_lora(
    settings: Settings,
    *,
    rank: Any,
    rank_key: str,
    targets: Iterable[str],
    targets_key: str,
) -> None:
    """Set LoRA's rank and the modules that it adapts.

    Args:
        settings: The recipe's.
        rank: The rank.
        rank_key: The key that has it.
        targets: Names of modules; ``all-linear`` or ``all`` for each linear layer but the head,
            none for peft's choice.
        targets_key: The key that has them.
    """
    settings.set("lora_rank", rank, rank_key)
    listed = list(targets)
    if {"all", ALL_LINEAR} & set(listed):
        settings.set("lora_targets", ALL_LINEAR, targets_key)
    elif any(not re.fullmatch(r"[\w.-]+", name) for name in listed):
        settings.refuse(
            targets_key,
            "peft takes what is in a list as names, not as patterns; write the pattern as one "
            "text, or pass --lora-targets",
        )
    elif listed:
        settings.set("lora_targets", ",".join(listed), targets_key)
    elif "lora_targets" not in settings.given:
        _set_usual_targets(settings, targets_key)


def _set_usual_targets(settings: Settings, key: str) -> None:
    kind = model_config(settings).get("model_type", "")
    if (usual := PEFT_TARGETS.get(str(kind))) is None:
        settings.refuse(
            key,
            "it is left out, and which modules peft adapts then is not known for this model; list "
            "them, or pass --lora-targets all-linear",
        )
    else:
        settings.set("lora_targets", usual, key)
        settings.note(f"LoRA adapts {usual}, as peft does where no modules are named.")


def model_config(settings: Settings) -> Mapping[str, Any]:
    """The config of the recipe's model, where it is a preset; empty if it is elsewhere."""
    name = settings.given.get("model") or settings.fields.get("model")
    try:
        model = find_model(str(name))
    except InvalidInput:  # said with the request
        return {}
    return model.config() if isinstance(model, Preset) else {}


def set_quantization(
    settings: Settings, bits: int | None, key: str, *, kind: str, doubly: bool
) -> None:
    """Set the format of frozen weights, as bitsandbytes is asked for it.

    Args:
        settings: The recipe's.
        bits: 4 or 8; ``None`` for none.
        key: The key that asks for it.
        kind: Of 4 bits: ``nf4`` or ``fp4``.
        doubly: Whether the scales of 4 bits are quantized too.
    """
    if bits == 8:
        settings.set("quantization", Quantization.INT8, key)
    elif bits == 4 and kind == "fp4":
        settings.set("quantization", Quantization.FP4, key)
        if doubly:
            settings.note("fp4 is predicted with scales in fp32: 0.37 bits a weight too many.")
    elif bits == 4:
        nf4 = Quantization.NF4 if doubly else Quantization.NF4_SINGLE
        settings.set("quantization", nf4, key)
    elif bits is not None:
        settings.refuse(key, f"weights in {bits} bits are not predicted; choose 4 or 8")


def set_packing(settings: Settings, key: str, *, packs: bool) -> None:
    """Set how samples become a batch, where their lengths are given; else say what is assumed."""
    if "sample_lengths" in settings.given:
        settings.set("batching", Batching.PACKED if packs else Batching.LONGEST, key)
    elif packs:
        settings.note("Packed rows are taken to be full: each has the sequence length.")
    else:
        settings.note(
            "All samples are taken to be as long as the sequence length; --sample-lengths tells "
            "their real lengths."
        )


def need_flash(settings: Settings, key: str) -> None:
    """Refuse samples in one row without FlashAttention, whose mask is the square of the row.

    transformers makes it of their positions (``masking_utils.py``); it is not predicted.
    """
    attention = {**settings.fields, **settings.given}.get("attention")
    if attention != Attention.FLASH:
        settings.refuse(
            key,
            "samples in one row need a mask of its square without FlashAttention, which is not "
            "predicted; choose flash_attention_2, or pass --attention flash",
        )


def note_frozen_vision(settings: Settings, what: str) -> None:
    """Say that parts which read images are frozen by default, where the model may have some."""
    config = model_config(settings)
    if not config or "vision_config" in config:
        settings.note(
            f"{what} are frozen where the model reads images, and predicted as trained: the "
            "answer is too high by what their gradients and optimizer state take."
        )


def set_loss(settings: Settings, loss: CrossEntropy, key: str) -> None:
    if loss is not CrossEntropy.MODEL:
        settings.set("cross_entropy", loss, key)


def need_length(settings: Settings, key: str, why: str) -> None:
    """Refuse a recipe that does not limit its sequences, unless the request does."""
    if "sequence_length" not in settings.given:
        settings.refuse(key, f"{why}; pass --sequence-length")


def note_evaluation(settings: Settings, key: str, size_key: str, *, runs: bool) -> None:
    """Say that evaluation is left out of the answer, where the recipe evaluates.

    Args:
        settings: The recipe.
        key: The key that says whether it evaluates.
        size_key: The key of the batch size that it evaluates with.
        runs: Whether it evaluates.
    """
    if runs and "eval_batch_size" not in settings.given:
        size = f" {settings.written[size_key]}" if size_key in settings else ""
        settings.note(
            f"Evaluation ({key}) is not in the answer; --eval-batch-size{size} adds it, on one GPU."
        )
