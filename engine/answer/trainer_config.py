"""A decision as the lines of a script for transformers' Trainer, or for one of TRL's."""

from __future__ import annotations

import json
from dataclasses import replace

from ..core.choices import ZERO, CrossEntropy, Method, Parallelism, Precision, Recompute, Rollout
from ..core.optimizers import PROJECTED_MODULES, Optimizer
from ..interface.workload import Workload
from ..models.tasks import Task
from .config_parts import (
    LIGER,
    joined,
    made_by,
    model_lines,
    named_analysis,
    of_projections,
    products_kept,
    quoted,
    sink_lines,
    sink_names,
    true,
)
from .loaders import collator, packing, sampling

_TRL = {method: method.upper() for method in Method} | {
    Method.SFT: "",
    Method.DISTILLATION: "Distillation",
}
"""Prefixes of TRL's classes, by method; empty for transformers' own."""


def trainer_lines(workload: Workload, batch_size: int, analysis_id: int | None) -> str:
    """Lines for transformers' Trainer, or TRL's for its own methods; some are experimental."""
    given = _arguments(workload, batch_size)
    name = _TRL[workload.method]
    seq2seq = "" if workload.eval_new_tokens is None else "Seq2Seq"
    is_trial = workload.method in (Method.ORPO, Method.PPO)
    home = f"trl.experimental.{workload.method}" if is_trial else "trl"
    if name:
        given |= {
            **_lengths(workload),
            "gradient_checkpointing": str(workload.gradient_checkpointing),  # on by default
            "bf16": str(workload.precision is Precision.BF16_MIXED),  # as well
            "precompute_ref_log_probs": true(workload.precomputed_reference),
        }
    evaluated = "" if workload.eval_batch_size is None else "    eval_dataset=eval_dataset"
    if evaluated and workload.eval_samples is not None:
        evaluated += ", compute_metrics=compute_metrics"
    arguments = [f"    {name}={value}," for name, value in given.items() if value]
    knows_it = workload.optimizer is Optimizer.NONE or workload.optimizer.spec.trainer
    from_torchao = workload.optimizer_offload and workload.parallelism not in ZERO
    made = None if knows_it and not from_torchao else made_by(workload)
    rewarded = "reward_funcs, " if workload.method is Method.GRPO else ""
    if workload.method is Method.PPO:
        frozen = "None" if workload.lora_rank else "reference"
        rewarded = f"ref_model={frozen}, reward_model=reward_model, value_model=value_model, "
    rewarded += "teacher_model=teacher, " if workload.teacher else ""
    passed = "optimizers=(optimizer, None), " if made else ""
    passed += collator(workload)
    return joined(
        f"from {home} import {name}Config, {name}Trainer" if name else None,
        f"from memorymark.recording import {sink_names(analysis_id)}",
        "from memorymark.recording.trainer import MemoryMarkCallback",
        "",
        *products_kept(workload),
        f"arguments = {f'{name}Config' if name else f'{seq2seq}TrainingArguments'}(",
        '    "output",',
        *arguments,
        ")",
        *model_lines(_left_to_trainer(workload)),
        f"optimizer = {made}" if made else None,
        packing(workload),
        *sink_lines(analysis_id),
        f"recorder = MemoryMarkCallback(sink{named_analysis(analysis_id)})",
        f"trainer = {name or seq2seq}Trainer(",
        f"    model, {rewarded}args=arguments, train_dataset=dataset, {passed}callbacks=[recorder]"
        f"{',' if evaluated else ''}",
        evaluated or None,
        ")",
    )


def _lengths(workload: Workload) -> dict[str, str]:
    """Length arguments for one of TRL's trainers."""
    if workload.method is Method.PPO:
        answered = workload.completion_length or (workload.sequence_length or 0) - 1
        return {"response_length": str(answered)}
    if workload.method not in (Method.GRPO, Method.DISTILLATION):
        return {"max_length": str(workload.sequence_length)}
    length = workload.completion_length or (workload.sequence_length or 0) - 1
    beta = "0.04" if workload.kl_reference else "0.0"  # of distillation, forward KL
    given = {"max_completion_length": str(length), "beta": beta}
    if workload.rollout is Rollout.GENERATE:
        return given
    given |= {"use_vllm": "True", "vllm_mode": '"server"'}
    if workload.rollout is Rollout.VLLM:
        given |= {
            "vllm_mode": '"colocate"',
            "vllm_gpu_memory_utilization": str(workload.vllm_share / 100),
            "vllm_max_model_length": str(workload.sequence_length),
            "vllm_tensor_parallel_size": str(workload.vllm_tensor_parallel),
            "vllm_enable_sleep_mode": true(workload.vllm_sleep),
        }
    return given


def _arguments(workload: Workload, batch_size: int) -> dict[str, str]:
    """The arguments of transformers' Trainer; empty where its default is meant."""
    return {
        "per_device_train_batch_size": str(batch_size),
        **_evaluation(workload),
        "gradient_accumulation_steps": str(workload.gradient_accumulation),
        "bf16": true(workload.precision is Precision.BF16_MIXED),
        "fp16": true(workload.precision is Precision.FP16_MIXED),
        "tf32": true(workload.precision is Precision.TF32),
        "optim": quoted(_trainer_optimizer(workload)),
        "optim_args": quoted(_optimizer_arguments(workload)),
        "optim_target_modules": (f'r"{PROJECTED_MODULES}"' if workload.optimizer.spec.rank else ""),
        "gradient_checkpointing": true(workload.gradient_checkpointing),
        "activation_checkpointing_kwargs": _checkpointing_arguments(workload),
        "use_liger_kernel": true(workload.cross_entropy is CrossEntropy.LIGER),
        "liger_kernel_config": LIGER if workload.cross_entropy is CrossEntropy.LIGER else "",
        "train_sampling_strategy": sampling(workload),
        "torch_compile": true(workload.compile),
        "deepspeed": _deepspeed(workload),
        "fsdp": quoted("full_shard" if workload.parallelism is Parallelism.FSDP else None),
    }


def _evaluation(workload: Workload) -> dict[str, str]:
    """The arguments of an evaluation between steps; empty without one."""
    if workload.eval_batch_size is None:
        return {}
    given = {
        "eval_strategy": '"epoch"',
        "per_device_eval_batch_size": str(workload.eval_batch_size),
        "eval_accumulation_steps": str(workload.eval_accumulation_steps or ""),
    }
    if (tokens := workload.eval_new_tokens) is not None:
        # What the decoder reads counts there: all of the text, or its first token.
        is_decoder = workload.task is Task.CAUSAL_LANGUAGE_MODELLING
        most = tokens + (workload.sequence_length or 0 if is_decoder else 1)
        given |= {"predict_with_generate": "True", "generation_max_length": str(most)}
        if workload.eval_num_beams > 1:
            given["generation_num_beams"] = str(workload.eval_num_beams)
    return given


def _trainer_optimizer(workload: Workload) -> str | None:
    """The Trainer's name of an optimizer; ``None`` if it has none."""
    name = workload.optimizer.spec.trainer
    return f"{name}_layerwise" if name and workload.optimizer_in_backward else name


def _optimizer_arguments(workload: Workload) -> str | None:
    """Arguments that the Trainer passes to an optimizer beside its defaults."""
    if workload.optimizer.spec.trainer_arguments:
        return workload.optimizer.spec.trainer_arguments
    given = of_projections(workload)
    return ", ".join(f"{name}={value}" for name, value in given.items()) or None


def _left_to_trainer(workload: Workload) -> Workload:
    """The workload without what the arguments of a Trainer switch on."""
    left = replace(
        workload,
        gradient_checkpointing=False,
        checkpoint_every=1,
        recompute=Recompute.ALL,
        compile=False,
    )
    liger = left.cross_entropy is CrossEntropy.LIGER
    return replace(left, cross_entropy=CrossEntropy.MODEL) if liger else left


def _checkpointing_arguments(workload: Workload) -> str:
    """Checkpointing arguments of a Trainer; empty for its default."""
    every = workload.checkpoint_every
    given = [f'"every_n_layers": {every}'] if every > 1 else []
    if workload.gradient_checkpointing and workload.activation_offload:
        given.append('"offload": True')
    if workload.recompute is Recompute.CHEAP:
        given.append('"use_reentrant": False, "context_fn": keep_products')
    return f"{{{', '.join(given)}}}" if given else ""


def _deepspeed(workload: Workload) -> str:
    """DeepSpeed's settings for the Trainer, which fills in what is auto."""
    if workload.parallelism not in ZERO:
        return ""
    zero = {
        "stage": 1 + ZERO.index(workload.parallelism),
        "reduce_bucket_size": workload.bucket_elements,
        **({"overlap_comm": True} if workload.overlap_comm else {}),
        **_offloaded(workload),
    }
    auto = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    settings = json.dumps({"zero_optimization": zero, **auto})
    return f'{settings[:-1]}, "bf16": {{"enabled": "auto"}}}}'


def _offloaded(workload: Workload) -> dict[str, object]:
    """DeepSpeed's settings for what it keeps on the host."""
    host = {"device": "cpu", "pin_memory": True}
    if workload.cpu_offload:
        return {"offload_optimizer": host, "offload_param": host}
    return {"offload_optimizer": host} if workload.optimizer_offload else {}
