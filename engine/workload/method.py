"""What a language model learns from, beside plain texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Method, Rollout
from ..fields import Described, Group, Interval
from ..models.tasks import MAX_SEQUENCE_LENGTH


@dataclass(frozen=True, kw_only=True)
class LearningMethod:
    """What a language model learns from, beside plain texts."""

    method: Annotated[
        Method,
        Described(
            "Method",
            "What a language model learns from, as TRL trains it. A sample of DPO or ORPO is a "
            "pair of answers, one of GRPO or PPO a completion.",
            Group.METHOD,
            is_column=True,
        ),
    ] = Method.SFT
    completion_length: Annotated[
        int | None,
        Interval(ge=1, le=MAX_SEQUENCE_LENGTH),
        Described(
            "Answer length",
            "How many tokens of the sequence length are the answer; the rest is the prompt.",
            Group.METHOD,
            unit="tokens",
            empty="all of the sequence but its first token",
            metavar="TOKENS",
        ),
    ] = None
    teacher: Annotated[
        str | None,
        Described(
            "Teacher",
            "The preset that is distilled, such as qwen3-8b. It needs the same vocabulary.",
            Group.METHOD,
            empty="none",
            metavar="MODEL",
        ),
    ] = None
    reward_model: Annotated[
        str | None,
        Described(
            "Reward model",
            "The preset that PPO's reward and value models are made of, such as qwen3-0.6b. It "
            "needs the same vocabulary.",
            Group.METHOD,
            empty="the model itself",
            metavar="MODEL",
        ),
    ] = None
    kl_reference: Annotated[
        bool,
        Described(
            "KL penalty",
            "GRPO compares each answer with a frozen reference too, as TRL does where beta is "
            "above 0.",
            Group.METHOD,
        ),
    ] = False
    rollout: Annotated[
        Rollout,
        Described(
            "Completions",
            "Where GRPO's completions are generated: here between updates, or on other GPUs. PPO's "
            "are generated here.",
            Group.METHOD,
        ),
    ] = Rollout.GENERATE
    vllm_share: Annotated[
        int,
        Interval(ge=1, le=95),
        Described(
            "vLLM's share",
            "How much of the GPU vLLM takes beside the training, in percent "
            "(vllm_gpu_memory_utilization).",
            Group.METHOD,
            unit="%",
        ),
    ] = 30
    vllm_sleep: Annotated[
        bool,
        Described(
            "vLLM sleeps",
            "vLLM gives its share back while the model is updated (vllm_enable_sleep_mode).",
            Group.METHOD,
        ),
    ] = False
    vllm_tensor_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "vLLM's GPUs",
            "This many GPUs each have a part of vLLM's weights (vllm_tensor_parallel_size).",
            Group.METHOD,
            unit="GPUs",
        ),
    ] = 1
    steps_per_generation: Annotated[
        int,
        Interval(ge=1, le=1024),
        Described(
            "Batches per generation",
            "How many batches GRPO or PPO generates at once. In TRL it is the gradient "
            "accumulation unless set (steps_per_generation).",
            Group.METHOD,
            unit="batches",
        ),
    ] = 1
    precomputed_reference: Annotated[
        bool,
        Described(
            "Reference scored beforehand",
            "The reference scores all answers before training and is not kept in memory "
            "(precompute_ref_log_probs).",
            Group.METHOD,
        ),
    ] = False
