"""Predicts generating text: the memory of weights, prompts and growing cache, by batch and length.

``generation_traces(workload, texts, behaviour)(batch_size).peak_by_category()`` is what a rollout
of so many texts takes, beside anything else that is on the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import torch

from ..choices import Attention, Optimizer, Parallelism
from ..errors import InvalidInput
from ..models.tasks import Task
from ..step.batches import make_batch
from ..step.generating import Generation
from ..step.training import prepare
from ..texts import Texts
from ..tracing.fake_models import on_fake_tensors
from ..tracing.lowering import CudaBehaviour, CudaTemporaries
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import AffineTrace, Category, NotAffine, Trace
from ..workload import Workload
from .depths import Depths
from .every_batch_size import HIGH, LOW
from .tracer import TraceAt, fake_device


def generation_traces(
    workload: Workload, texts: Texts, behaviour: CudaBehaviour | None, *, alone: bool = False
) -> TraceAt:
    """Traces of generating so many texts at once, at every batch size.

    Args:
        workload: Its model generates, with its adapters and its precision, on one GPU.
        texts: How long they are.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        alone: Whether only one batch size is wanted.

    Raises:
        InvalidInput: If it is no language model that generates, or does not take such lengths.
    """
    generating = generating_workload(workload, texts)
    each = cache(Depths(generating, behaviour, trace_with=partial(_trace_model, texts=texts)))
    if alone:
        return each
    try:
        others = AffineTrace(each(LOW), each(HIGH))
    except NotAffine:
        return each
    return cache(lambda batch_size: each(1) if batch_size == 1 else others.at(batch_size))


def generating_workload(workload: Workload, texts: Texts) -> Workload:
    """The workload whose samples are the prompts, without anything that only trains.

    Raises:
        InvalidInput: As :func:`generation_traces` does.
    """
    name, limits = workload.preset.display_name, workload.preset.sequence_length
    if workload.task is not Task.CAUSAL_LANGUAGE_MODELLING:
        wanted = "generation is predicted for decoders that write text (causal-language-modelling)"
        raise InvalidInput({"task": f"{wanted}; {name} is not set up as one"})
    if limits is not None and texts.whole_length > limits.largest:
        message = f"{name} takes at most {limits.largest:,} tokens, prompt and answer together"
        raise InvalidInput({"prompt_length": message})
    return replace(
        workload,
        sequence_length=texts.prompt_length,
        optimizer=Optimizer.NONE,
        gradient_accumulation=1,
        parallelism=Parallelism.NONE,
        world_size=1,
        eval_batch_size=None,
        eval_samples=None,
        eval_accumulation_steps=None,
    )


def _trace_model(
    model: torch.nn.Module,
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    texts: Texts,
) -> Trace:
    """Trace a model on the meta device, which is changed, while it generates."""
    prompts = make_batch(workload, batch_size)["input_ids"]
    with fake_device(behaviour) as mode:
        training = prepare(workload, on_fake_tensors(model).eval(), predicting=True)
        training.flash_only = behaviour is not None and workload.attention is Attention.FLASH
        temporaries = CudaTemporaries(behaviour) if behaviour is not None else None
        recorder = MemoryRecorder(training, batch_size, temporaries)
        generation = Generation(training, mode.given(prompts), texts.new_tokens, texts.cache_format)
        for move in generation.moves:
            recorder.record_step(move)
            _sort_cache(recorder, generation)
        # Without the frees that come when the texts go.
        return replace(recorder.trace, events=list(recorder.trace.events))


def _sort_cache(recorder: MemoryRecorder, generation: Generation) -> None:
    """Apart, so that no variable keeps a tensor that the cache has replaced."""
    for tensor in generation.cached:
        recorder.sort_into(tensor, Category.CACHE)
