"""GRPO as recipes describe it: completions, their reference, and where they are generated.

axolotl and ms-swift hand these settings to TRL's trainer, or to one derived from it, under names of
their own. What an answer says of vLLM beside the update is in
:mod:`engine.prediction.memory.colocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.choices import Method, Rollout
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM beside the training, on the same GPUs.

    Attributes:
        share: The part of the GPU that it takes.
        sleeps: Whether it gives that back for the update.
        gpus: GPUs that share a copy of its model.
    """

    share: float
    sleeps: bool = False
    gpus: int | None = None


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How GRPO gets its completions, and from how many batches at once.

    Attributes:
        completion: Tokens of a completion at most; ``None`` for no limit.
        beta: Weight of the divergence from a reference; without it there is none.
        steps: Batches to a generation; ``None`` for those of an optimizer step.
        samples: Samples of a generation on all GPUs, in place of ``steps``.
        vllm: vLLM on the same GPUs, :attr:`Rollout.SERVER` on others, ``None`` for the trainer.
    """

    completion: int | None
    beta: float | None
    steps: int | None = None
    samples: int | None = None
    vllm: Vllm | Rollout | None = None


def set_grpo(settings: Settings, generation: Generation, key: str, **keys: str) -> None:
    """Set GRPO, of which prompt and completion together have the sequence length.

    Args:
        settings: The recipe's.
        generation: How it generates.
        key: The key that asks for GRPO, or for the settings as a whole.
        keys: Keys that set ``completion``, ``beta``, ``samples`` and ``vllm``, by these names;
            ``key`` by default.
    """
    settings.set("method", Method.GRPO, key)
    length = keys.get("completion", key)
    if generation.completion is None:
        settings.refuse(length, "completions have no limit; enter one, or pass --completion-length")
    settings.set("completion_length", generation.completion, length)
    if generation.beta:
        settings.set("kl_reference", True, keys.get("beta", key))
    settings.set("steps_per_generation", _steps(settings, generation, keys.get("samples", key)))
    _set_rollout(settings, generation.vllm, keys.get("vllm", key))


def _steps(settings: Settings, generation: Generation, key: str) -> int:
    """Batches to a generation, as ``GRPOConfig`` derives them."""
    known = {**settings.fields, **settings.given}
    if generation.samples is None:
        return generation.steps or int(str(known.get("gradient_accumulation", 1)))
    batch = int(str(known.get("current_batch_size", 1))) * int(str(known.get("world_size", 1)))
    steps, rest = divmod(generation.samples, batch)
    if rest or not steps:
        settings.refuse(
            key,
            f"{generation.samples:,} samples of a generation are not a multiple of the {batch:,} "
            "of a step on all GPUs; correct it, or pass --batch-size or --world-size",
        )
    return max(1, steps)


def _set_rollout(settings: Settings, vllm: Vllm | Rollout | None, key: str) -> None:
    if isinstance(vllm, Rollout):
        settings.set("rollout", vllm, key)
    elif vllm is not None:
        settings.set("rollout", Rollout.VLLM, key)
        settings.set("vllm_share", round(100 * vllm.share), key)
        settings.set("vllm_sleep", vllm.sleeps, key)
        settings.set("vllm_tensor_parallel", vllm.gpus, key)


def whole_or_none(value: Any) -> int | None:
    """A whole number of a nested mapping; ``None`` for anything else, ``True`` among it."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
