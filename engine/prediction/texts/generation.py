"""Predicts generating text: the memory of weights, prompts and growing cache, by batch and length.

``generation_traces(workload, texts, behaviour).at(batch_size).peak_by_category()`` is what a
rollout of ``batch_size`` texts takes, beside anything else that is on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ...core.choices import OFFLOADED_CACHES, Attention
from ...core.errors import InvalidInput
from ...core.optimizers import Optimizer
from ...interface.goals import GENERATES
from ...interface.texts import Texts, refused
from ...interface.workload import Workload
from ...models.tasks import Task
from ...parallel.group_recorder import GroupRecorder
from ...parallel.offload import HostTensors
from ...step.batches import make_batch
from ...step.building import forward_arguments
from ...step.caches import Caches
from ...step.generating import Generation
from ...step.training import prepare
from ...traces.batch_rule import on_a_line
from ...traces.machine import fake_device
from ...traces.shallow_models import ShallowModels
from ...traces.source import Kept, TraceSource
from ...traces.tracer import NO_FLASH, WholeModel
from ...tracing.attention import NoKernel
from ...tracing.fake_models import on_fake_tensors
from ...tracing.lowering import CudaBehaviour, CudaTemporaries
from ...tracing.recorder import MemoryRecorder
from ...tracing.trace import Category, Operation, Trace


def generation_traces(
    workload: Workload, texts: Texts, behaviour: CudaBehaviour | None, *, alone: bool = False
) -> TraceSource:
    """Traces of generating several texts at once, at every batch size.

    Args:
        workload: Its model generates, with its adapters and its precision, on one GPU.
        texts: Lengths of the texts.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        alone: Whether only one batch size is wanted.

    Raises:
        InvalidInput: If the model does not generate, or does not take such lengths.
    """
    generating = generating_workload(workload, texts)
    each = ShallowModels(GeneratingModel(generating, behaviour, texts=texts))
    return each if alone else Kept(on_a_line(each))


def reads_text(workload: Workload) -> bool:
    """Whether a model reads a text before it generates one; others read sound or images only."""
    return "input_ids" in forward_arguments(workload)


def longest_written(workload: Workload, texts: Texts) -> int:
    """The most tokens that a model generates."""
    limits = workload.preset.limits("sequence_length", workload.task)
    return limits.largest if limits else texts.new_tokens


def longest_read(workload: Workload, texts: Texts) -> int:
    """The longest prompt that leaves room for as many new tokens; an encoder's need no room."""
    limits = workload.preset.limits("sequence_length", workload.task)
    if limits is None:
        return texts.prompt_length
    is_encoded = workload.task is Task.SEQUENCE_TO_SEQUENCE or not reads_text(workload)
    return limits.largest - (0 if is_encoded else texts.new_tokens)


def generating_workload(workload: Workload, texts: Texts) -> Workload:
    """The workload whose samples are the prompts, without anything that only trains.

    Raises:
        InvalidInput: As :func:`generation_traces` does.
    """
    if wrong := refused(workload, texts):
        raise InvalidInput(wrong)
    kept: dict[str, Any] = {name: getattr(workload, name) for name in ("model", *GENERATES)}
    length = min(texts.prompt_length, longest_read(workload, texts))
    return Workload(**kept, sequence_length=length, optimizer=Optimizer.NONE)


@dataclass(eq=False, repr=False)
class GeneratingModel(WholeModel):
    """Traces a model while it generates, in place of its training steps.

    Attributes:
        texts: Lengths of the texts.
    """

    texts: Texts = field(kw_only=True)

    def trace(self, model: torch.nn.Module, batch_size: int) -> Trace:
        return _trace_model(model, self.workload, batch_size, self.behaviour, self.texts)


def _trace_model(
    model: torch.nn.Module,
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    texts: Texts,
) -> Trace:
    """Trace a model on the meta device, which is changed, while it generates."""
    batch = make_batch(workload, batch_size)
    with fake_device(behaviour) as mode:
        training = prepare(workload, on_fake_tensors(model).eval(), predicting=True)
        training.flash_only = behaviour is not None and workload.attention is Attention.FLASH
        temporaries = CudaTemporaries(behaviour) if behaviour is not None else None
        recorder = MemoryRecorder(training, batch_size, temporaries)
        caches = Caches(texts.cache_format)
        if texts.cache_format in OFFLOADED_CACHES:
            host = HostTensors([], lambda: "", waits=True)
            recorder = GroupRecorder(training, batch_size, temporaries, lambda: None, host=host)
            caches = Caches(texts.cache_format, host)
        given = tree_map(mode.given, batch)
        generation = Generation(training, given, texts.new_tokens, caches, texts.num_beams)
        operations: list[Operation] = []
        try:
            for move in generation.moves:
                recorder.record_step(move)
                operations += recorder.trace.operations
                _sort_cache(recorder, generation)
        except NoKernel as error:
            raise InvalidInput({"attention": NO_FLASH}) from error
        return replace(recorder.finish(), operations=operations)


def _sort_cache(recorder: MemoryRecorder, generation: Generation) -> None:
    """Apart, so that no variable keeps a tensor that the cache has replaced."""
    for tensor in generation.cached:
        recorder.sort_into(tensor, Category.CACHE)
