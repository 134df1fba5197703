"""Corrects predicted step times by steps that were measured on the same kind of GPU.

The logarithm of measured over predicted time is taken as a part that all workloads on a GPU share,
plus a part of the workload, plus noise; each is normally distributed around zero. Measured steps
give the two parts by the posterior of that model (Gelman et al., Bayesian Data Analysis,
3rd edition, section 5.4), so few or scattered measurements correct little.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ...answer.recommendation import fit_step_time
from ...core.errors import InvalidInput
from ...core.process import calibration_file
from ...gpus.checked import STEP, SelfCheck
from ...gpus.known import in_use
from ...interface.workload import Workload
from ...records.comparison import RecordedFile
from .intervals import Counted, RelativeRange, Residual, read_residuals
from .recorded_steps import Sifted, of_workload
from .speed_model import step_predictor

GPU_SPREAD = 0.06
"""Standard deviation of the logarithm of measured over predicted step time, of whole GPUs. All
three are those of steps on 28 GPUs, as ``python -m benchmarks.step_time`` prints."""
WORKLOAD_SPREAD = 0.09
"""The same of workloads on one GPU."""
STEP_SPREAD = 0.05
"""The same of steps of one workload on one GPU, at several batch sizes."""
_MAX_REASONS = 3
"""Largest number of reasons in a sentence."""


@dataclass(frozen=True)
class Correction:
    """Correction of a workload's step times on one GPU by measured steps.

    Attributes:
        own: Steps of this very workload on that kind of GPU.
        others: Number of other workloads that were measured there.
        expected: The logarithm of measured over predicted time that those others suggest.
        spread: The standard deviation of that logarithm around ``expected``, before ``own``.
        of_host: Steps of this very workload there that depend on a host of which nothing was known.
        launch_seconds: The host's time for a launch by these steps, once that was worked out.
        recorded: The name of the file that ``of_host`` are from, where somebody named one.
        untold: Reasons why steps of that file do not give the launch time.
    """

    own: Sequence[Residual] = ()
    others: int = 0
    expected: float = 0.0
    spread: float = math.hypot(GPU_SPREAD, WORKLOAD_SPREAD)
    of_host: Sequence[Residual] = ()
    launch_seconds: float | None = None
    recorded: str = ""
    untold: Sequence[str] = ()

    def factor(self, batch_size: int) -> float:
        """Factor by which a predicted step time has to be multiplied."""
        if not self.own:
            return math.exp(self.expected)
        seen = math.log(_ratio_at(self.own, batch_size))
        return math.exp(self.expected + self._trust * (seen - self.expected))

    def narrowed(self, span: RelativeRange) -> RelativeRange:
        """The range of a step time, which is as uncertain as what is left to learn."""
        left = math.hypot(self.spread * math.sqrt(1 - self._trust), STEP_SPREAD)
        share = left / math.hypot(GPU_SPREAD, WORKLOAD_SPREAD, STEP_SPREAD)
        return RelativeRange(span.low**share, span.high**share)

    def caveats(self, batch_size: int) -> list[str]:
        """Sentence on the correction of step times and its basis; empty if there is none."""
        basis, host = [], self.host_caveats()
        if self.own:
            basis.append(f"this workload at batch {_sizes(self.own)}")
        if self.others:
            basis.append(f"{self.others:,} other workload{'s' * (self.others > 1)}")
        if not basis:
            return host
        change = 100 * (self.factor(batch_size) - 1)
        how = f"{abs(change):.0f}% {'longer' if change > 0 else 'shorter'}"
        return [
            *host,
            f"Step times are {how} at batch {batch_size:,} than the operations alone give, as "
            f"measured on this kind of GPU with {' and '.join(basis)}.",
        ]

    def with_file(self, name: str, sifted: Sifted) -> Correction:
        """The same with a named file, whose steps are to give the launch time."""
        return replace(self, of_host=sifted.counted, recorded=name, untold=sifted.refused)

    def host_caveats(self) -> list[str]:
        """Sentence on the host's time for a launch and how that is known; or none.

        Where a named file does not give it, the sentence says why.
        """
        if self.launch_seconds is not None:
            where = f", recorded in {self.recorded}" if self.recorded else ""
            return [
                f"Its host takes {1e6 * self.launch_seconds:.0f} µs to launch an operation, by "
                f"what was measured of this workload at batch {_sizes(self.of_host)}{where}."
            ]
        if not self.recorded:
            return []
        reasons = list(dict.fromkeys(self.untold))
        named = "; ".join(reasons[:_MAX_REASONS]) + "; …" * (len(reasons) > _MAX_REASONS)
        return [f"{self.recorded} does not tell the launch time: {named}."]

    @property
    def _trust(self) -> float:
        """Weight of the measured steps of the workload itself, from 0 to below 1."""
        if not self.own:
            return 0.0
        return self.spread**2 / (self.spread**2 + STEP_SPREAD**2 / len(self.own))


def _sizes(residuals: Iterable[Residual]) -> str:
    sizes = sorted({residual.batch_size for residual in residuals})
    return ", ".join(f"{size:,}" for size in sizes[:5]) + (", …" if len(sizes) > 5 else "")


UNCORRECTED = Correction()
"""Default where nothing was measured."""


@dataclass(frozen=True)
class Experience:
    """Every step that was measured and can be compared with its prediction.

    Attributes:
        residuals: On GPUs by their name in the catalogue. Only those whose time was predicted as it
            is here (:func:`~.speed_model.step_predictor`) are used, so none of memory.
            Their predictions are not corrected.
        recorded: A named file that is to give the launch time, if any.
    """

    residuals: Sequence[Residual] = ()
    recorded: RecordedFile | None = None

    @classmethod
    def here(
        cls, given: Iterable[Residual] = (), recorded: RecordedFile | None = None
    ) -> Experience:
        """Experience of this machine, from its calibration file, self-checks and ``given``."""
        path = calibration_file()
        own = read_residuals(path) if path.exists() else ()
        checked = [residual for check in in_use().values() for residual in _steps_of(check)]
        return cls([*own, *checked, *given], recorded)

    def of(self, workload: Workload, gpu: str) -> Correction:
        """Correction for a workload on a catalogue GPU."""
        by_workload: dict[str, list[Residual]] = defaultdict(list)
        of_hosts: dict[str, list[Residual]] = defaultdict(list)
        for residual in self.residuals:
            if residual.gpu != gpu or residual.counted is not Counted.STEP_SECONDS:
                continue
            if residual.predicted is None:
                of_hosts[_identity(residual.workload)].append(residual)
            elif residual.predictor == step_predictor():
                by_workload[_identity(residual.workload)].append(residual)
        identity = _identity(workload.to_dict())
        own = by_workload.pop(identity, [])
        precision, weighted = 1 / GPU_SPREAD**2, 0.0
        for found in by_workload.values():
            weight = 1 / (WORKLOAD_SPREAD**2 + STEP_SPREAD**2 / len(found))
            precision += weight
            weighted += weight * fmean(math.log(residual.ratio) for residual in found)
        correction = Correction(
            own=own,
            others=len(by_workload),
            expected=weighted / precision,
            spread=math.hypot(1 / math.sqrt(precision), WORKLOAD_SPREAD),
            of_host=of_hosts.get(identity, ()),
        )
        if self.recorded is None:
            return correction
        sifted = of_workload(self.recorded, workload, gpu)
        return correction.with_file(self.recorded.name, sifted)


NO_EXPERIENCE = Experience()


def _steps_of(check: SelfCheck) -> Iterator[Residual]:
    """The step times that a self-check measured beside their predictions."""
    for one in check.comparisons:
        if one.counted == STEP:
            yield Residual(
                gpu=check.gpu_name,
                workload=one.fields,
                batch_size=one.batch_size,
                counted=Counted.STEP_SECONDS,
                measured=one.measured,
                predicted=one.predicted,
                source=f"self-check, {check.when[:10]}, torch {check.identity.torch}",
                predictor=check.step_predictor,
            )


def _identity(fields: Mapping[str, Any]) -> str:
    """Equal for workloads whose steps take equally long, a micro-batch at a time."""
    try:
        workload = Workload.parse(fields)
    except InvalidInput:  # of another version of MemoryMark: still a workload of its own
        return json.dumps(fields, sort_keys=True, default=str)
    same = replace(workload, gradient_accumulation=1)
    return json.dumps(same.to_dict(), sort_keys=True)


def _ratio_at(own: Sequence[Residual], batch_size: int) -> float:
    """Measured over predicted time at a batch size, which need not be among the measured ones.

    Both times grow along a line, alpha + beta * batch, where two batch sizes or more were measured.
    """
    if len({residual.batch_size for residual in own}) < 2:
        return math.exp(fmean(math.log(residual.ratio) for residual in own))
    measured = fit_step_time((r.batch_size, r.measured / micro_batches(r)) for r in own)
    predicted = fit_step_time((r.batch_size, r.measured / r.ratio / micro_batches(r)) for r in own)
    return _on_line(measured, batch_size) / _on_line(predicted, batch_size)


def _on_line(line: tuple[float, float], batch_size: int) -> float:
    alpha, beta = line
    return alpha + beta * batch_size


def micro_batches(residual: Residual) -> int:
    """Number of micro-batches in its step."""
    return int(residual.workload.get("gradient_accumulation") or 1)
