"""Traces a workload's training step on fake tensors: no GPU, no weights, no memory needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy
import torch
from torch.utils._pytree import tree_map

from ..core.choices import Attention, Parallelism
from ..core.errors import InvalidInput, NotPredictable
from ..interface.workload import Workload
from ..models.presets import PRESETS
from ..parallel.group import among_gpus
from ..parallel.zero import cast_trained, computed_alone
from ..step.batches import make_batch
from ..step.context import NOT_ON_A_CPU
from ..step.evaluating import evaluate, evaluation_of
from ..step.flex_attention import compiled_in_models, refuse_dropout
from ..step.pipelining import Stage, cut
from ..step.rollouts import completions_of, roll_out
from ..step.training import Training, build_model, prepare, step_of
from ..step.values_in_models import known_in_models
from ..tracing.attention import NoKernel
from ..tracing.fake_models import on_fake_tensors
from ..tracing.flex_attention import flex_attention_lowering
from ..tracing.hidden_gpus import hide_gpus
from ..tracing.known_values import KnownValues
from ..tracing.lowering import CudaBehaviour, CudaTemporaries, cuda_lowering
from ..tracing.trace import NeedsTwoSamples, Trace, batch_norm_refuses
from ..versions.loaded_modules import namespaces, replaced

_MATCHING = "linear_sum_assignment"

STEPS = 2
"""The peak comes in the second step, when the optimizer's state exists."""

_NO_RING = (
    "ring attention needs a fused kernel, and none takes this model's attention: choose bf16-mixed "
    "and a GPU of compute capability 8.0 or newer, or leave context_parallel at 1"
)
NO_FLASH = (
    "FlashAttention does not take this model's attention: it needs compute capability 8.0 or "
    "newer, heads at most 256 wide, and batches without a padding mask; choose sdpa"
)


def trace(
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    forward_only: bool = False,
    rank: int = 0,
) -> Trace:
    """Trace two training steps at one batch size.

    Args:
        workload: The workload.
        batch_size: Samples per step.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        forward_only: Whether to trace the forward pass alone, to compare with.
        rank: Rank of the GPU among those that share the work.

    Raises:
        NeedsTwoSamples: If PyTorch refuses a batch of 1.
        InvalidInput: If the chosen attention does not take the model's tensors.
    """
    return trace_model(
        meta_model(workload, rank),
        workload,
        batch_size,
        behaviour,
        forward_only=forward_only,
        rank=rank,
    )


def meta_model(workload: Workload, rank: int = 0) -> torch.nn.Module:
    """The part of the workload's model that a GPU runs, on the meta device."""
    with torch.device("meta"):
        sharded = workload.parallelism is Parallelism.ZERO_3
        model = build_model(computed_alone(workload), predicting=True, sharded=sharded)
        if workload.pipeline_parallel > 1:
            stage, stages = workload.stage_of(rank), workload.pipeline_parallel
            return cut(model, stage, stages, workload.layers_of_stages)
        return cast_trained(model, workload)


def trace_model(
    model: torch.nn.Module,
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    forward_only: bool = False,
    rank: int = 0,
) -> Trace:
    """Trace two training steps of a model on the meta device, which is changed.

    All else is as :func:`trace` has it.
    """
    if behaviour is None and workload.context_parallel > 1:
        raise InvalidInput({"context_parallel": NOT_ON_A_CPU})
    real_batch = make_batch(workload, batch_size)
    evaluation = None if forward_only else evaluation_of(workload)
    completions = None if forward_only else completions_of(workload, batch_size)
    with among_gpus(workload, rank) as group, fake_device(behaviour) as mode:
        shared = group.spread(on_fake_tensors(model))
        training = prepare(computed_alone(workload), shared, predicting=True)
        training.optimizer = group.optimizer(training.optimizer)
        _run_fewer(training)
        temporaries = CudaTemporaries(behaviour) if behaviour is not None else None
        recorder = group.recorder(training, batch_size, temporaries)
        training.offload_to(group.on_host())
        batch = tree_map(mode.given, real_batch)
        step = step_of(forward_only)
        # The CPU's FlashAttention takes other tensors.
        training.flash_only = behaviour is not None and workload.attention is Attention.FLASH
        moves = [lambda: step(training, batch)] * STEPS
        if evaluation is not None:
            evaluated = evaluation.with_batch(tree_map(mode.given, evaluation.batch))
            moves.insert(1, lambda: evaluate(training, evaluated))
        if completions is not None:
            prompted = completions.with_tensors(mode.given)
            moves.insert(1, lambda: roll_out(training, prompted, group.generating(shared)))
        try:
            for move in moves:
                recorder.record_step(move)
        except NoKernel as error:
            is_ring = workload.context_parallel > 1 and workload.attention is not Attention.FLASH
            raise InvalidInput({"attention": _NO_RING if is_ring else NO_FLASH}) from error
        except NotPredictable as error:
            raise InvalidInput({"attention": str(error)}) from error
        except ValueError as error:
            if batch_norm_refuses(error):
                raise NeedsTwoSamples from error
            refuse_dropout(error)
            raise
        return recorder.trace


@dataclass(eq=False)
class WholeModel:
    """Traces all of a workload's model, or others like it: the last of the sources.

    Attributes:
        workload: The workload.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        rank: Rank of the GPU whose training steps these are.
    """

    workload: Workload
    behaviour: CudaBehaviour | None
    rank: int = 0

    def __repr__(self) -> str:
        name = self.workload.preset.display_name
        return f"{type(self).__name__}({name!r}, {self.behaviour!r}, rank={self.rank})"

    @cached_property
    def model(self) -> torch.nn.Module:
        """The model on the meta device."""
        return meta_model(self.workload, self.rank)

    def at(self, batch_size: int) -> Trace:
        return self.trace(copy.deepcopy(self.model), batch_size)

    def trace(self, model: torch.nn.Module, batch_size: int) -> Trace:
        """Trace a model in place of the workload's; it is on the meta device, and changed."""
        return trace_model(model, self.workload, batch_size, self.behaviour, rank=self.rank)


def _run_fewer(training: Training) -> None:
    """Leave out micro-batches that are like those before them.

    That is each from the second on; in a pipeline, which has several in flight, each beyond the
    number of its stages.
    """
    stage = training.model if isinstance(training.model, Stage) else None
    most = 2 if stage is None else stage.count
    if stage is not None:
        stage.unscheduled = max(0, training.micro_batches - most)
    training.micro_batches = min(training.micro_batches, most)


@contextmanager
def fake_device(behaviour: CudaBehaviour | None) -> Iterator[KnownValues]:
    """New tensors are fake, and treated as on a GPU.

    A real GPU is hidden: optimizers and transformers check whether it records a graph, and a
    process that only predicts would take a CUDA context away from the trials it predicts for.

    Args:
        behaviour: Behaviour of the GPU; ``None`` treats them as on the CPU.
    """
    hide_gpus()
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "is_available", lambda: False))
        mode = KnownValues(checks_pass=True)
        mode.allow_non_fake_inputs = True  # models may have tensors that are not on their lists
        stack.enter_context(known_in_models(lambda tensor: mode.values(tensor) is not None))
        stack.enter_context(mode)
        stack.enter_context(known_values())
        stack.enter_context(_spread_masks())
        if behaviour is not None:
            stack.enter_context(cuda_lowering(behaviour))
            stack.enter_context(flex_attention_lowering(lambda: False))
            stack.enter_context(compiled_in_models())
        yield mode


@contextmanager
def _spread_masks() -> Iterator[None]:
    """Spread the spans that speech models hide (SpecAugment) evenly, where they are drawn.

    Where spans overlap by chance, fewer frames are hidden, and no two traces would be alike.
    """
    drawn = numpy.random.choice

    def choice(among: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        if replace or not isinstance(size, int) or isinstance(among, int):
            return drawn(among, size, replace, p)
        return among[numpy.linspace(0, len(among) - 1, size).astype(int)]

    with (
        patch.object(numpy.random, "choice", choice),
        patch.object(numpy.random, "rand", lambda *shape: numpy.full(shape, 0.5)),
    ):
        yield


def warm_up() -> None:
    """Trace something small: the first trace of a process loads half a second of modules."""
    trace(Workload(next(iter(PRESETS))), 1, None)


@contextmanager
def known_values() -> Iterator[None]:
    """Provide the values that some code reads from tensors, which fake tensors do not have.

    Transformers 5.17 draws a number to skip a layer even where none is skipped. Optimizers read the
    number of steps, and the gradient scaler looks for infinite gradients. Detectors match what they
    find with what is there; each object finds its match, whichever it is. ``torch.tensor`` reads
    tensors in a list itself, past every mode, where it should dispatch. ``Module.to`` swaps fake
    parameters even with themselves, which those that keep their values do not allow.
    """
    draw, write = torch.rand, torch.tensor
    swap: Callable[..., None] = torch.utils.swap_tensors

    def draw_one(*size: Any, **options: Any) -> Any:
        return 1.0 if size == ([],) else draw(*size, **options)

    def write_numbers(data: Any, **options: Any) -> torch.Tensor:
        return write(_numbers(data), **options)

    def swap_others(one: torch.Tensor, other: torch.Tensor) -> None:
        if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
            swap(one, other)

    def step(
        scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return optimizer.step(*args, **kwargs)

    def match(costs: torch.Tensor) -> tuple[numpy.ndarray, numpy.ndarray]:
        first = numpy.arange(min(costs.shape))
        return first, first

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.amp.GradScaler, "_maybe_opt_step", step))
        stack.enter_context(patch("torch.rand", draw_one))
        stack.enter_context(patch("torch.tensor", write_numbers))
        stack.enter_context(patch("torch.utils.swap_tensors", swap_others))
        modules = [names for names in namespaces("transformers") if _MATCHING in names]
        stack.enter_context(replaced((names, _MATCHING, match) for names in modules))
        for optimizer in ("adam", "adagrad"):
            stack.enter_context(patch(f"torch.optim.{optimizer}._get_value", lambda _: 1.0))
        yield


def _numbers(data: Any) -> Any:
    """Nested lists of numbers, some of which may be tensors."""
    if isinstance(data, list | tuple):
        return [_numbers(item) for item in data]
    return data.item() if isinstance(data, torch.Tensor) and data.dim() == 0 else data
