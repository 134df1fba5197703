"""Batch sizes of a script on a GPU, each tried alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from ..core.numbers import rate
from ..core.sizes import gib, gib_number
from .result import Phase
from .trial import GpuFacts, Trial


@dataclass(frozen=True)
class BatchTrials:
    """Memory and time of batch sizes of a script on a GPU, predicted or measured.

    Attributes:
        gpu: The GPU.
        trials: Trials by batch size.
        caveats: Sentences about what the numbers assume and leave out.
        software: The versions that it was traced with, by package.
        phases: Peaks of memory by phase, at the first batch size; empty where they are not known.
    """

    gpu: GpuFacts
    trials: list[Trial]
    caveats: list[str]
    software: dict[str, str]
    phases: list[Phase] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        """One line for each batch size, then what they assume."""
        lines = [self._line(trial) for trial in self.trials]
        return "\n".join([*lines, *(f"- {caveat}" for caveat in self.caveats)])

    def _line(self, trial: Trial) -> str:
        known = trial.device_used_bytes or trial.peak_allocated_bytes or 0
        fits = "fits" if trial.fits else "does not fit"
        line = f"Batch {trial.batch_size:,} {fits} on {self.gpu.name}: {gib_number(known)}"
        low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
        if low is not None and high is not None:
            line += f" ({gib_number(low)} to {gib_number(high)})"
        line += f" of {gib(self.gpu.total_bytes)}"
        if trial.fits and trial.samples_per_second is not None:
            line += f", {rate(trial.samples_per_second)}"
        return f"{line} ({trial.source})"
