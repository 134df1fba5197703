"""Traces a workload's training step on fake tensors: no GPU, no weights, no memory needed."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

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
from ..step.flex_attention import refuse_dropout
from ..step.pipelining import Stage, cut
from ..step.rollouts import completions_of, roll_out
from ..step.training import TrainingState, build_model, prepare, step_of
from ..tracing.attention import NoKernel
from ..tracing.fake_models import on_fake_tensors
from ..tracing.lowering import CudaBehaviour, CudaTemporaries
from ..tracing.trace import NeedsTwoSamples, Trace, batch_norm_refuses
from .machine import fake_device

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
        return recorder.finish()


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
        """The model on the meta device, of which every trace takes a copy."""
        return meta_model(self.workload, self.rank)

    def at(self, batch_size: int) -> Trace:
        return self.trace(copy.deepcopy(self.model), batch_size)

    def trace(self, model: torch.nn.Module, batch_size: int) -> Trace:
        """Trace a model in place of the workload's; it is on the meta device, and changed."""
        return trace_model(model, self.workload, batch_size, self.behaviour, rank=self.rank)


def _run_fewer(training: TrainingState) -> None:
    """Leave out micro-batches that are like those before them.

    That is each from the second on; in a pipeline, which has several in flight, each beyond the
    number of its stages.
    """
    stage = training.model if isinstance(training.model, Stage) else None
    most = 2 if stage is None else stage.count
    if stage is not None:
        stage.unscheduled = max(0, training.micro_batches - most)
    training.micro_batches = min(training.micro_batches, most)


def warm_up() -> None:
    """Trace something small: the first trace of a process loads half a second of modules."""
    trace(Workload(next(iter(PRESETS))), 1, None)
