"""PyTorch's own stage and its 1F1B schedule, told what they receive and watched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

Pass = Callable[[], AbstractContextManager[Any]]
"""The context that a forward or backward pass runs in."""


def scheduled(
    module: torch.nn.Module,
    place: tuple[int, int],
    given: torch.Tensor,
    made: torch.Tensor,
    micro_batches: int,
    passes: tuple[Pass, Pass],
    loss: Callable[..., torch.Tensor],
    group: dist.ProcessGroup,
) -> Schedule1F1B:
    """The schedule of one stage, which frees each output once it is sent.

    Args:
        module: The module that the stage runs.
        place: Its index, and the number of stages.
        given: Its input for a micro-batch, without values.
        made: Its output for that.
        micro_batches: Micro-batches of a step.
        passes: The contexts of each forward and of each backward pass.
        loss: Loss of the last stage's output, given the labels. All stages have it, or none would
            run backward.
        group: The stages' group.
    """
    device = next(module.parameters()).device
    stage = _Watched(module, *place, device, input_args=given, output_args=made, group=group)
    stage.forward_in, stage.backward_in = passes
    return Schedule1F1B(stage, micro_batches, loss_fn=loss)


class _Watched(PipelineStage):
    """A stage of PyTorch's that enters a context for each forward and backward pass."""

    forward_in: Pass
    backward_in: Pass

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.forward_in():
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.backward_in():
            return super().backward_one_chunk(*args, **kwargs)

    def _warmup_forward_vote(self, *_: Any, **__: Any) -> torch.Tensor:
        """All stages know what they receive, so nothing is to be agreed on by messages."""
        return torch.ones(1, dtype=torch.int32)

    def _warmup_backward_result(self, *_: Any, **__: Any) -> torch.Tensor:
        return torch.ones(1, dtype=torch.int32)
