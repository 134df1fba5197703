"""The top of an answer: what to do, how sure that is, and the lines to paste."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from analyses.charts.breakdown import used_bytes
from analyses.charts.picture import Fit, fit_of
from analyses.figures.settings import command_of
from engine.answer.amounts import beyond_largest, of_the_gpu, trial_at
from engine.answer.certificate import commands_of
from engine.answer.figures import (
    CURRENT_BATCH,
    CURRENT_HEADROOM,
    LARGEST_BATCH,
    SPEED,
)
from engine.answer.learning_rate import about_global_batch
from engine.answer.offers import Offer, offers_of_script
from engine.answer.program_config import program_configs
from engine.answer.superlatives import CURRENT, RECOMMENDED, named_batches
from engine.answer.training_config import TrainingConfig, training_configs
from engine.answer.worth import Gain, gain_of, has_gain
from engine.core.errors import InvalidInput
from engine.core.numbers import times_range
from engine.core.sizes import gib, gib_of
from engine.features.training import MAX_ACCUMULATION
from engine.interface.program import read_request, stored_program
from engine.interface.result import AnalysisResult, GlobalBatch
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload


@dataclass(frozen=True)
class Fact:
    """A batch size with a name, and what to know about it."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Decision:
    """The top of an answer page.

    Attributes:
        sentence: The decision.
        fit: Whether the current batch fits, beginning with yes, no or maybe; empty without one.
        tone: ``change``, ``keep`` or ``problem``.
        training: What it does to the global batch and the learning rate; empty if nothing, and with
            moves, of which the ladder says it.
        sureness: The range of the numbers; empty where unknown.
        measurements: Commands that measure the current batch, if there is one, and the recommended
            one.
        facts: The batch sizes with a name.
        configs: The lines to paste.
        offers: What keeps a script's global batch, and what changes it; none for a model.
    """

    sentence: str
    fit: str
    tone: str
    training: str
    sureness: str
    measurements: list[str]
    facts: list[Fact]
    configs: list[TrainingConfig]
    offers: list[Offer]

    @property
    def changes(self) -> bool:
        return self.tone == "change"


def decision_of(
    result: AnalysisResult, request: Mapping[str, Any], reported_to: int | None = None
) -> Decision:
    """The top of an answer.

    Args:
        result: The answer.
        request: The stored fields of its request, for the command.
        reported_to: The analysis that runs of the lines are reported to; ``None`` for no one's.
    """
    return Decision(
        sentence=result.decision or result.verdict,
        fit=_fit(result),
        tone=_tone(result),
        training="" if result.today else about_global_batch(result),
        sureness=_sureness(result),
        measurements=_measurements(result, request),
        facts=_facts(result),
        configs=_configs(result, request, reported_to),
        offers=[] if result.today else offers_of_script(result),  # with moves, the ladder has them
    )


def _fit(result: AnalysisResult) -> str:
    """Whether the current batch fits as it is trained today."""
    current = result.current_batch_size
    trial = None if current is None else result.today or trial_at(result, current)
    if trial is None:
        return ""
    batch, total = CURRENT_BATCH.text(current), result.gpu.total_bytes
    used = trial.device_used_bytes
    memory = "" if used is None else f": {gib_of(used, total)}"
    fit = fit_of(trial, total)
    if fit is Fit.FAILS:
        return f"No, batch {batch} does not fit{memory}."
    if fit is Fit.UNCERTAIN:
        most = gib_of(trial.device_used_high_bytes or total, total)
        return f"Maybe: batch {batch} needs {gib(used or total)}, at most {most}."
    surely = "" if trial.source is Source.MEASURED else "surely "
    return f"Yes, batch {batch} {surely}fits{memory}."


def _tone(result: AnalysisResult) -> str:
    if result.safe_batch_size == 0:
        return "problem"
    kept = result.recommended_batch_size == result.current_batch_size
    if result.today is not None:  # with moves, which are worth it or not
        kept = result.speedup is not None and not has_gain(result)
    return "keep" if kept else "change"


def _sureness(result: AnalysisResult) -> str:
    """A sentence to stand behind the source; empty where there is nothing to say."""
    chosen = trial_at(result, result.recommended_batch_size)
    if result.source is Source.MEASURED:
        rounds = result.comparison
        count = len(rounds.current_samples_per_second) if rounds else 0
        off = f"in {count} interleaved rounds" if count else ""
    else:
        ranges = [] if chosen is None else [memory_range(chosen), _speed_range(chosen)]
        off = ", ".join(filter(None, ranges))
    said = "; ".join(filter(None, [off, _interval(result)]))
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _interval(result: AnalysisResult) -> str:
    """The certainty and interval of the gain; empty without one."""
    low, high, gain = result.speedup_low, result.speedup_high, gain_of(result)
    if low is None or high is None or gain is Gain.NONE:
        return ""
    kind = "sure" if gain is Gain.SURE else "probable"
    return f"the gain is {kind} ({times_range(low, high)})"


def memory_range(trial: Trial) -> str:
    """The range of the predicted memory; empty if unknown."""
    return _range(
        "memory", trial.device_used_bytes, trial.device_used_low_bytes, trial.device_used_high_bytes
    )


def _speed_range(trial: Trial) -> str:
    """The range of the speed, which is highest where the step is shortest."""
    seconds, low, high = trial.step_seconds, trial.step_seconds_low, trial.step_seconds_high
    if not (seconds and low and high):
        return ""
    return _range("speed", 1 / seconds, 1 / high, 1 / low)


def _range(name: str, value: float | None, low: float | None, high: float | None) -> str:
    """Such as ``memory ±6%`` or ``speed −20/+35%``."""
    if not value or low is None or high is None:
        return ""
    under, over = round(100 * (1 - low / value)), round(100 * (high / value - 1))
    if under == over:
        return f"{name} ±{over}%"
    return f"{name} \N{MINUS SIGN}{under}/+{over}%"


def _measurements(result: AnalysisResult, request: Mapping[str, Any]) -> list[str]:
    """The commands that measure both batches; none where something was measured."""
    if result.source is Source.MEASURED:
        return []
    compared = [(request, result.current_batch_size)]
    if not result.move_lines:  # no command makes them in a script
        compared += [(_moved(request, result), result.recommended_batch_size)]
    try:
        wanted = [(read_request(fields), size) for fields, size in compared if size]
    except InvalidInput:  # stored by a version with other settings
        return []
    commands = (commands_of(one, Source.MEASURED, (size,)) for one, size in wanted)
    return list(dict.fromkeys(chain.from_iterable(commands)))


def _moved(request: Mapping[str, Any], result: AnalysisResult) -> Mapping[str, Any]:
    """The fields of the request with the moves and the batch of its answer."""
    if result.workload is None:
        return request
    moves = {} if result.today is None else result.workload.to_dict()
    moved = {**request, **moves, "current_batch_size": result.recommended_batch_size}
    kept = result.global_batch
    if kept is None:
        return moved
    return {
        **moved,
        "gradient_accumulation": kept.gradient_accumulation,
        "global_batch_size": kept.size if kept.kept_size == kept.size else None,
    }


def _accumulating(workload: Workload, kept: GlobalBatch | None) -> Workload:
    """A workload with the micro-batches that keep its global batch at the recommended one."""
    if kept is None:
        return workload
    return replace(
        workload, gradient_accumulation=min(kept.gradient_accumulation, MAX_ACCUMULATION)
    )


def _facts(result: AnalysisResult) -> list[Fact]:
    """The recommended, the fastest and the largest batch, and the memory left."""
    facts = []
    for size, names in named_batches(result).items():
        if shown := [name for name in names if name != CURRENT]:
            name = ", ".join(shown).capitalize()
            facts.append(Fact(name, LARGEST_BATCH.text(size), _note(result, size, shown)))
    return [*facts, _free(result)]


def _note(result: AnalysisResult, size: int, names: list[str]) -> str:
    """Whether a batch fits, unless its names say so, and its speed."""
    notes = []
    if size == result.largest_batch_size:
        notes.append(beyond_largest(result))
    elif names == [RECOMMENDED]:
        unsure = result.safe_batch_size is not None and size > result.safe_batch_size
        notes.append("may run out of memory" if unsure else "surely fits")
    trial = trial_at(result, size)
    if trial is not None and trial.samples_per_second is not None:
        notes.append(f"{SPEED.with_unit(trial.samples_per_second)} ({trial.source})")
    return ", ".join(notes)


def _free(result: AnalysisResult) -> Fact:
    """The memory left at the current batch; at the recommended one if there is none yet."""
    total, free, when = result.gpu.total_bytes, result.current_headroom_bytes, ", today"
    size = result.current_batch_size
    if size is None:
        size, when = result.recommended_batch_size, ""
        trial = trial_at(result, size)
        used = used_bytes(trial) if trial else None
        free = None if used is None else total - used
    name = f"Free at batch {CURRENT_BATCH.text(size)}"
    if free is None:
        return Fact(name, "none", "it does not fit")
    return Fact(name, CURRENT_HEADROOM.text(free), f"{of_the_gpu(free, result)}{when}")


def _configs(
    result: AnalysisResult, request: Mapping[str, Any], reported_to: int | None
) -> list[TrainingConfig]:
    """The lines to paste; the last one is the command, where one names what is trained."""
    size = result.recommended_batch_size
    command = command_of({**_moved(request, result), "current_batch_size": size})
    commands = [TrainingConfig("Command", command + "\n")] if command else []
    if result.workload is not None:
        trained = _accumulating(result.workload, result.global_batch)
        return [*training_configs(trained, size, reported_to), *commands]
    if program := stored_program(request):
        lines = program_configs(program.program, size, reported_to, result.move_lines)
        return [*lines, *commands]
    return commands
