"""The mean power of a GPU in training, from its power limit and its load.

Only the GPU counts: not the host, cooling or the losses of a data center (its PUE).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..gpus import GPUS, catalogue_name
from ..interface.result import AnalysisResult, MeasuredOn
from ..interface.trial import GpuFacts, Trial

IDLE_SHARE = 0.156
BUSY_SHARE = 0.725
BUSY_LOAD = 0.7
"""Mean power as a share of the power limit near no load, and from 70% of the top speed on.

Fitted to 166 published runs of five workloads on four GPUs by ``python -m benchmarks.power``, which
prints the error too (``benchmarks/data/power.csv``: Zeus, NSDI 2023).
"""

POWER_RANGE = (0.66, 1.41)
ALIKE = 1.2
RATIO_RANGE = (0.84, 1.13)
RATIO_RANGE_UNLIKE = (0.52, 2.13)
"""Measured over predicted: the power at one batch, and the ratio of power at two batches of a
workload, where the rule has them within 20% of each other and where it has not. 5th and 95th
percentile on workloads and GPUs that were left out of the fit."""


def power_share(load: float) -> float:
    """The mean power of a GPU in training, as a share of its power limit.

    It rises with the load up to :data:`BUSY_LOAD`, and then stays: a GPU that waits for launches
    draws little, one whose kernels fill it draws about the same at every batch.

    Args:
        load: Samples per second over those at the fastest batch, from 0 to 1.
    """
    return IDLE_SHARE + (BUSY_SHARE - IDLE_SHARE) * min(1.0, load / BUSY_LOAD)


@dataclass(frozen=True)
class Power:
    """The mean power of one GPU at the current and the recommended batch, in watts.

    Attributes:
        limit: The power limit of the GPU.
    """

    limit: float
    current: float
    recommended: float

    @property
    def range(self) -> tuple[float, float]:
        """The interval of both, as factors. No GPU draws more than its limit on average."""
        low, high = POWER_RANGE
        return low, min(high, self.limit / max(self.current, self.recommended))

    @property
    def ratio_range(self) -> tuple[float, float]:
        """The interval of recommended over current, as factors."""
        least, most = sorted((self.current, self.recommended))
        return RATIO_RANGE if most <= ALIKE * least else RATIO_RANGE_UNLIKE


def limit_watts(gpu: GpuFacts, measured_on: MeasuredOn | None) -> float | None:
    """The power limit that a driver reported, else the catalogue's; ``None`` if unknown."""
    if measured_on is not None and measured_on.power_limit_watts is not None:
        return measured_on.power_limit_watts
    name = catalogue_name(gpu.name.partition(" limited to ")[0])
    return None if name is None else GPUS[name].power_watts


def power_of(
    limit: float | None, current: Trial, recommended: Trial, known: Iterable[Trial]
) -> Power | None:
    """The power at two batches of a workload; ``None`` where the limit or a speed is unknown.

    Args:
        limit: The power limit of the GPU, in watts.
        current: The trial of the current batch.
        recommended: The trial of the recommended batch.
        known: Other trials of the workload on that GPU; the fastest that fits is full load.
    """
    now, then = current.samples_per_second, recommended.samples_per_second
    if limit is None or not now or not then:
        return None
    # A prediction and a measurement may be off by different factors.
    alike = [trial for trial in known if trial.fits and trial.source is recommended.source]
    top = max(now, then, *(trial.samples_per_second or 0.0 for trial in alike))
    return Power(limit, limit * power_share(now / top), limit * power_share(then / top))


def power_in(result: AnalysisResult) -> Power | None:
    """The power at both batches of a result; ``None`` where it cannot be known."""
    trials: dict[int | None, Trial] = {trial.batch_size: trial for trial in result.trials}
    current = trials.get(result.current_batch_size)
    recommended = trials.get(result.recommended_batch_size)
    if current is None or recommended is None or result.today is not None:
        return None
    limit = limit_watts(result.gpu, result.measured_on)
    return power_of(limit, current, recommended, [*result.trials, *result.curve])
