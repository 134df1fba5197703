"""Method by which a language model learns, from plain texts or beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..core.choices import Method, Parallelism, Precision, Quantization, Rollout
from ..core.fields import Described, Group, Interval
from ..models.presets import PRESETS
from ..models.tasks import MAX_SEQUENCE_LENGTH, Task
from .contradiction import (
    ANY,
    GIVEN,
    NAMED,
    NOT_GIVEN,
    OF_ANSWERS,
    ON,
    QUANTIZED,
    Contradiction,
    one_of,
    other_than,
)


@dataclass(frozen=True, kw_only=True)
class LearningMethod:
    """Method by which a language model learns, from plain texts or beyond them."""

    method: Annotated[
        Method,
        Described(
            "Method",
            "What a language model learns from, as TRL trains it. A sample of DPO or ORPO is a "
            "pair of answers, one of GRPO or PPO a completion.",
            Group.METHOD,
            is_column=True,
            chip=str.upper,
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
            chip="answers of {:,} tokens",
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
            chip="teacher {}",
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
            chip="reward model {}",
        ),
    ] = None
    kl_reference: Annotated[
        bool,
        Described(
            "KL penalty",
            "GRPO compares each answer with a frozen reference too, as TRL does where beta is "
            "above 0.",
            Group.METHOD,
            chip="KL penalty",
        ),
    ] = False
    rollout: Annotated[
        Rollout,
        Described(
            "Completions",
            "Where GRPO's completions are generated: here between updates, or on other GPUs. PPO's "
            "are generated here.",
            Group.METHOD,
            chip="completions: {}",
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
            chip="vLLM has {}%",
        ),
    ] = 30
    vllm_sleep: Annotated[
        bool,
        Described(
            "vLLM sleeps",
            "vLLM gives its share back while the model is updated (vllm_enable_sleep_mode).",
            Group.METHOD,
            chip="vLLM sleeps",
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
            chip="vLLM in {:,} parts",
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
            chip="{:,} batches per generation",
        ),
    ] = 1
    precomputed_reference: Annotated[
        bool,
        Described(
            "Reference scored beforehand",
            "The reference scores all answers before training and is not kept in memory "
            "(precompute_ref_log_probs).",
            Group.METHOD,
            chip="reference scored beforehand",
        ),
    ] = False


def _answer_is_too_long(workload: Any) -> bool:
    return (workload.completion_length or 0) >= (workload.sequence_length or 0)


RULES = (
    Contradiction(
        {"method": OF_ANSWERS, "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING, None)},
        "only for causal language modelling; choose sft",
    ),
    Contradiction(
        {"method": one_of(Method.PPO), "parallelism": one_of(Parallelism.FSDP)},
        "TRL's PPOTrainer generates with weights that FSDP has divided, and fails; choose zero-2 "
        "or zero-3",
    ),
    Contradiction(
        {
            "method": one_of(Method.DISTILLATION),
            "parallelism": one_of(Parallelism.ZERO_3),
        },
        "TRL 1.16 reads heads here that ZeRO 3 has divided, and fails; choose zero-2 or fsdp",
    ),
    Contradiction(
        {"method": OF_ANSWERS, "pipeline_parallel": other_than(1)},
        "answers are not predicted in a pipeline; choose sft, or 1 stage",
    ),
    Contradiction(
        {"method": OF_ANSWERS, "tensor_parallel": other_than(1)},
        "answers are not predicted with split layers; choose sft, or 1 GPU for a model",
    ),
    Contradiction(
        {"compile": ON, "method": OF_ANSWERS},
        "a compiled step is only measured with sft; leave it off",
    ),
    Contradiction(
        {"use_cache": ON, "method": OF_ANSWERS},
        "TRL switches the cache off in training; leave it empty",
    ),
    Contradiction(
        {"completion_length": GIVEN, "method": one_of(Method.SFT)},
        "only for a method that scores answers; leave it empty",
    ),
    Contradiction(
        {"completion_length": GIVEN, "sequence_length": GIVEN},
        "an answer needs a prompt: enter less than the sequence length",
        _answer_is_too_long,
    ),
    Contradiction(
        {"teacher": NAMED, "method": other_than(Method.DISTILLATION)},
        "only distillation has a teacher; leave it empty",
    ),
    Contradiction(
        {"teacher": NOT_GIVEN, "method": one_of(Method.DISTILLATION)},
        "distillation needs a teacher; enter a preset, such as qwen3-8b",
    ),
    Contradiction(
        {"teacher": NAMED},
        "no preset has this name; enter one that 'memorymark models' lists",
        lambda workload: workload.teacher not in PRESETS,
    ),
    Contradiction(
        {"rollout": one_of(Rollout.SERVER, Rollout.VLLM), "method": other_than(Method.GRPO)},
        "only GRPO takes answers from elsewhere; choose generate",
    ),
    Contradiction(
        {"rollout": one_of(Rollout.VLLM), "quantization": one_of(Quantization.INT8)},
        "TRL does not hand 8-bit weights to vLLM; choose server, or nf4",
    ),
    Contradiction(
        {"vllm_share": other_than(30), "rollout": other_than(Rollout.VLLM)},
        "only vLLM beside the training has a share; leave it at 30 or choose vllm",
    ),
    Contradiction(
        {"vllm_sleep": ON, "rollout": other_than(Rollout.VLLM)},
        "only vLLM beside the training sleeps; leave it off or choose vllm",
    ),
    Contradiction(
        {"vllm_tensor_parallel": other_than(1), "rollout": other_than(Rollout.VLLM)},
        "only vLLM beside the training splits its layers; leave it at 1 or choose vllm",
    ),
    Contradiction(
        {"vllm_tensor_parallel": other_than(1)},
        "enter a number that divides that of the GPUs",
        lambda workload: workload.world_size % workload.vllm_tensor_parallel != 0,
    ),
    Contradiction(
        {
            "steps_per_generation": other_than(1),
            "method": other_than(Method.GRPO, Method.PPO),
        },
        "only GRPO and PPO generate their answers; leave it at 1",
    ),
    Contradiction(
        {
            "steps_per_generation": ANY,
            "gradient_accumulation": other_than(1),
            "method": one_of(Method.GRPO, Method.PPO),
            "rollout": one_of(Rollout.GENERATE),
        },
        "TRL generates for all micro-batches at once: enter the gradient accumulation here too",
        lambda workload: workload.steps_per_generation < workload.gradient_accumulation,
    ),
    Contradiction(
        {"reward_model": NAMED, "method": other_than(Method.PPO)},
        "only PPO has a reward model; leave it empty",
    ),
    Contradiction(
        {"reward_model": NAMED},
        "no preset has this name; enter one that 'memorymark models' lists",
        lambda workload: workload.reward_model not in PRESETS,
    ),
    Contradiction(
        {"quantization": QUANTIZED, "method": one_of(Method.PPO)},
        "PPO's value model is trained whole and not predicted beside 4 bits; choose none",
    ),
    Contradiction(
        {"precision": one_of(Precision.FP16_MIXED), "method": one_of(Method.PPO)},
        "PPO is not predicted with a gradient scaler; choose bf16-mixed",
    ),
    Contradiction(
        {"kl_reference": ON, "method": other_than(Method.GRPO)},
        "only GRPO leaves the choice; leave it off",
    ),
    Contradiction(
        {
            "precomputed_reference": ON,
            "method": other_than(Method.DPO, Method.KTO),
        },
        "this method has no reference, or scores new answers; leave it off or choose dpo or kto",
    ),
)
