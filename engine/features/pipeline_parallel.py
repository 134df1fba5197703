"""Stages of layers on several GPUs, which pass micro-batches on (1F1B)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..core.choices import Precision
from ..core.fields import Described, Group, Interval
from ..models.tasks import Task
from .contradiction import NAMED, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class PipelineParallel:
    """Stages of layers on several GPUs, which pass micro-batches on (1F1B)."""

    pipeline_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Pipeline stages",
            "This many GPUs each have a part of the layers and pass micro-batches on (1F1B). "
            "Gradient accumulation is the number of micro-batches.",
            Group.SEVERAL,
            chip="{:,} pipeline stages",
        ),
    ] = 1
    stage_layers: Annotated[
        str | None,
        Described(
            "Layers of each stage",
            "How many layers each pipeline stage has, such as 7,8,8,7: the first also has the "
            "embeddings, and the last the head.",
            Group.SEVERAL,
            empty="equal parts, the last with the remainder",
            metavar="NUMBERS",
            chip="stages of {} layers",
        ),
    ] = None

    @property
    def layers_of_stages(self) -> tuple[int, ...]:
        """Layers of each pipeline stage; empty where each has an equal part.

        Raises:
            ValueError: If something in them is no whole number.
        """
        return tuple(map(int, self.stage_layers.split(","))) if self.stage_layers else ()


def _are_no_layers_of_stages(workload: Any) -> bool:
    try:
        layers: tuple[int, ...] = workload.layers_of_stages
    except ValueError:
        return True
    are_all = len(layers) == workload.pipeline_parallel
    return not are_all or min(layers) < 1


RULES = (
    Contradiction(
        {"stage_layers": NAMED, "pipeline_parallel": one_of(1)},
        "there are no stages; leave it empty or enter their number",
    ),
    Contradiction(
        {"stage_layers": NAMED},
        "enter a whole number above 0 for each stage, separated by commas",
        _are_no_layers_of_stages,
    ),
    Contradiction(
        {
            "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING, None),
            "pipeline_parallel": other_than(1),
        },
        "pipelines are predicted for causal language models",
    ),
    Contradiction(
        {"precision": one_of(Precision.FP16_MIXED), "pipeline_parallel": other_than(1)},
        "PyTorch's schedules do not scale the loss; choose bf16-mixed",
    ),
)
