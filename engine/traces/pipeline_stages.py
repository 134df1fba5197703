"""The GPU that needs most memory, where those of a pipeline need unlike amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..interface.workload import Workload
from ..tracing.trace import Trace
from .source import TraceSource


@dataclass(eq=False)
class FullestStage:
    """The traces of the pipeline stage that needs most memory.

    Attributes:
        workload: The workload, with its stages.
        stages: The traces of the :func:`candidates`.
    """

    workload: Workload = field(repr=False)
    stages: Mapping[int, TraceSource]

    def at(self, batch_size: int) -> Trace:
        traces = {stage: source.at(batch_size) for stage, source in self.stages.items()}
        needed = {
            stage: trace.replay().peak_reserved_bytes / 2**30 for stage, trace in traces.items()
        }
        stage = max(needed, key=needed.__getitem__)
        others = ", ".join(
            f"{gib:,.2f} GiB for stage {other + 1:,}"
            for other, gib in needed.items()
            if other != stage
        )
        told = (
            f"Stage {stage + 1:,} of {self.workload.pipeline_parallel:,} needs the most memory, "
            f"{needed[stage]:,.2f} GiB, {self._why(stage)}; traced beside it: {others}."
        )
        return replace(traces[stage], caveats=[*traces[stage].caveats, told])

    def _why(self, stage: int) -> str:
        """Reason why a stage needs more memory than others."""
        stages = self.workload.pipeline_parallel
        kept = stages - stage
        keeps = f"as it keeps {kept:,} micro-batch{'es' if kept > 1 else ''} for backward"
        if stage == 0:
            return f"{keeps} and has the embeddings"
        return "as it has the head and its logits" if stage == stages - 1 else keeps


def candidates(workload: Workload) -> list[int]:
    """The stages of a pipeline of which one needs most memory.

    The first has the embeddings and keeps most micro-batches, the last has the head. Of those
    between, each keeps one micro-batch fewer than the one before it, so only those with more layers
    than all before them may need more.
    """
    last = workload.pipeline_parallel - 1
    layers = workload.layers_of_stages or (1,) * (last + 1)
    between = [
        stage for stage in range(1, last) if all(layers[stage] > one for one in layers[1:stage])
    ]
    return [0, *between, last]
