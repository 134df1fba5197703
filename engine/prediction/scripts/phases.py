"""Peaks of memory in each phase of a script: as it was followed to its end, at any batch size.

A step is traced at every batch size. The rest is followed at the batch of today and, where the
script evaluates or later steps need more, at twice that: others lie on the line through both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from ...core.errors import EngineError
from ...core.sizes import gib
from ...gpus import Gpu
from ...interface.result import Phase, PhaseName
from ...interface.trial import Source, Trial
from ...script.data.early_evaluation import EVALUATED_BATCHES
from ...script.data.later_epochs import NEWS
from ...script.factory import Factory
from ...script.phase_peaks import Peak, Saved, WholeRun
from ...script.request import Script
from ...script.trace import follow_script
from ...script.trace_report import EVALUATES
from ...tracing.lowering import CudaBehaviour
from ...tracing.trace import Category, Trace
from ..memory.host_memory import FILE_BYTES
from ..memory.phases import judged_by, traced_peaks

Follow = Callable[[int], WholeRun]


class ScriptPhases:
    """The phases of a script.

    Args:
        follow: Follows it at a batch size; ``None`` for one that gives nothing but its step.
        batch_size: The batch of today.
    """

    def __init__(self, follow: Follow | None, batch_size: int) -> None:
        self._follow, self._batch_size = follow, batch_size
        self._why = ""

    @classmethod
    def of(cls, script: Script, batch_size: int, behaviour: CudaBehaviour | None) -> ScriptPhases:
        """The phases of a script that sees a GPU, from a batch size on."""
        if isinstance(script, Factory):  # it gives its step alone
            return cls(None, batch_size)
        return cls(lambda size: follow_script(script, size, behaviour), batch_size)

    @cached_property
    def _runs(self) -> tuple[WholeRun, ...]:
        """The script followed at one batch size or two; none where it cannot be."""
        if self._follow is None:
            return ()
        try:
            first = self._follow(self._batch_size)
        except EngineError as error:
            self._why = str(error)
            return ()
        if PhaseName.EVALUATION not in first.peaks and not _grows_later(first):
            return (first,)
        try:
            second = self._follow(2 * self._batch_size)
        except EngineError:
            return (first,)
        return (first, second) if second.peaks.keys() == first.peaks.keys() else (first,)

    def _peak(self, name: PhaseName, batch_size: int) -> Peak | None:
        """The peak of a phase at a batch size; ``None`` if the script did not come to it."""
        if not self._runs or name not in self._runs[0].peaks:
            return None
        low, high = self._runs[0], self._runs[-1]
        if low is high:
            return low.peaks[name]
        share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
        one, other = low.peaks[name], high.peaks[name]
        return Peak(
            max(0, round(one.device + share * (other.device - one.device))),
            max(0, round(one.host + share * (other.host - one.host))),
        )

    def _beyond(self, name: PhaseName, step: Trace) -> int:
        """Bytes that a phase takes of the GPU beyond the step; below 0 if it takes less."""
        peak = self._peak(name, step.batch_size)
        return -1 if peak is None else peak.device - traced_peaks(step)[PhaseName.STEP]

    def _later_beyond(self, step: Trace) -> int:
        """Bytes that steps of later epochs take beyond the step; 0 where that is next to none."""
        more, of_step = self._beyond(PhaseName.LATER_STEP, step), traced_peaks(step)[PhaseName.STEP]
        return more if more > (NEWS - 1) * of_step else 0

    def _largest(self, step: Trace) -> tuple[int, PhaseName]:
        """Bytes that the largest phase takes beyond the step, and its name."""
        return max(
            (self._beyond(PhaseName.EVALUATION, step), PhaseName.EVALUATION),
            (self._later_beyond(step), PhaseName.LATER_STEP),
        )

    def limiting(self, step: Trace) -> PhaseName:
        """The phase that needs the most of the GPU; the step, where others need no more."""
        more, name = self._largest(step)
        return name if more > 0 else PhaseName.STEP

    def judged(self, trial: Trial, gpu: Gpu, step: Trace) -> Trial:
        """A trial of a step, judged by the evaluation and by later steps too."""
        more, name = self._largest(step)
        judged = judged_by(trial, more, f"{_THE[name]} takes", gpu)
        if judged is trial:
            return trial
        held, kind = trial.breakdown, _MADE[name]
        return replace(
            judged,
            source=Source.COMPUTED,
            peak_allocated_bytes=(trial.peak_allocated_bytes or 0) + more,
            peak_reserved_bytes=(trial.peak_reserved_bytes or 0) + more,
            breakdown=held | {kind: held.get(kind, 0) + more},
        )

    def phases(self, step: Trace, source: Source) -> list[Phase]:
        """The phases, in the order in which they come.

        Args:
            step: The trace of a batch.
            source: That of the step's memory.
        """
        size = step.batch_size
        loading = self._peak(PhaseName.LOADING, size)
        if loading is None:
            return []
        host = self._peak(PhaseName.STEP, size)
        found = [
            _phase(PhaseName.LOADING, loading, self._source(Source.PREDICTED), _LOADING),
            _phase(
                PhaseName.STEP,
                Peak(traced_peaks(step)[PhaseName.STEP], host.host if host else step.host_bytes),
                source,
                "Tensors that the script keeps on the host.",
            ),
        ]
        later = self._peak(PhaseName.LATER_STEP, size)
        if later is not None and self._later_beyond(step):
            found.append(
                _phase(PhaseName.LATER_STEP, later, self._source(Source.PREDICTED), _LATER)
            )
        evaluation = self._peak(PhaseName.EVALUATION, size)
        if evaluation is not None:
            run = self._runs[0]
            extended = Source.COMPUTED if run.grows else self._source(Source.PREDICTED)
            found.append(_phase(PhaseName.EVALUATION, evaluation, extended, _about_evaluation(run)))
        return [*found, self._saving(step)]

    def _source(self, source: Source) -> Source:
        """A source, or ``computed`` for what lies on a line between two traces."""
        return Source.COMPUTED if len(self._runs) > 1 else source

    def _saving(self, step: Trace) -> Phase:
        held = step.held_between_steps()
        saved, peak = self._runs[0].saved, self._peak(PhaseName.SAVING, step.batch_size)
        if saved is None or peak is None:
            weights = held[Category.PARAMETERS]
            how = (
                "It did not come to save anything. save_pretrained would have the weights on the "
                "host at once, and torch.save one tensor at a time."
            )
            kept = Peak(sum(held.values()), weights)
            return _phase(PhaseName.SAVING, kept, Source.COMPUTED, how)
        file = min(saved.file, max(FILE_BYTES, saved.largest))
        whole = replace(peak, host=peak.host + max(file, saved.largest))
        return _phase(PhaseName.SAVING, whole, Source.COMPUTED, _about_saving(saved))

    def without_what_was_followed(self, caveats: list[str]) -> list[str]:
        """The caveats, without the one that an evaluation was not traced where it was."""
        evaluates = self._runs and PhaseName.EVALUATION in self._runs[0].peaks
        return [one for one in caveats if one != EVALUATES] if evaluates else caveats

    @property
    def caveats(self) -> list[str]:
        """Sentences about how far the script was followed."""
        if self._follow is None:
            return [NOT_FOLLOWED]
        if not self._runs:
            return [f"{NOT_FOLLOWED} To follow it there failed: {_clause(self._why)}."]
        (first, *_), named = self._runs, [PhaseName.EVALUATION, PhaseName.SAVING]
        grows = [_GROWS] if _grows_later(first) else []
        missing = [one for one in named if one not in first.peaks]
        if not missing:
            return grows
        why = f": {_clause(first.left)}" if first.left else ""
        return [
            *grows,
            f"After the traced steps, the script was followed and did not come to "
            f"{' or '.join(missing)}{why}.",
        ]


NOT_FOLLOWED = "What later steps do besides, such as evaluation or saving, was not traced."
_MADE = {
    PhaseName.EVALUATION: Category.TEMPORARIES.value,  # it frees what it makes
    PhaseName.LATER_STEP: Category.ACTIVATIONS.value,
}
_THE = {PhaseName.EVALUATION: "evaluation", PhaseName.LATER_STEP: "a later training step"}
_LATER = "The largest step of the epochs and stages of training that were followed."
_GROWS = (
    "Steps grow: one of a later epoch takes more memory than those that were traced, as where "
    "images or texts become larger, layers are thawed, another stage of training follows, or "
    "outputs and the best weights are kept. "
    "Memory counts it; time and speed are those of the first steps, and epochs after the followed "
    "ones may take more still."
)
_LOADING = "All that the script has made before its first forward pass, with the first batch."


def _grows_later(run: WholeRun) -> bool:
    """Whether a step of a later epoch takes more than the traced ones."""
    later, step = run.peaks.get(PhaseName.LATER_STEP), run.peaks.get(PhaseName.STEP)
    return later is not None and step is not None and later.device > NEWS * step.device


def _clause(said: str) -> str:
    return said.rstrip(".")


def _phase(name: PhaseName, peak: Peak, source: Source, how: str) -> Phase:
    return Phase(name, peak.device, peak.host, 1, source, how)


def _about_evaluation(run: WholeRun) -> str:
    if run.grows:
        return f"What each of {run.batches:,} batches keeps is counted, all of full size."
    count = "" if run.batches is None else f" of {run.batches:,}"
    return f"Up to {EVALUATED_BATCHES} batches{count} were traced, all of full size."


def _about_saving(saved: Saved) -> str:
    if saved.file:
        return f"{saved.by} has {gib(saved.file)} of weights on the host before it writes a file."
    return f"{saved.by} copies one tensor at a time to the host, {gib(saved.largest)} at most."
