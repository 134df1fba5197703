"""Past prediction errors for similar models: in the lab itself, and where others measured.

All members' measurements count, since the page shows no more of them than their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.formatting import fine_share
from analyses.models import Analysis, FigureSource, TrainingRun
from analyses.training_runs.prediction_errors import (
    Compared,
    measured_trials,
    step_times_of,
    training_runs_of,
)
from engine.gpus import GPUS, catalogue_name
from engine.interface.result import AnalysisResult
from engine.prediction.timing.past_errors import ALL, Errors, Group, PredictedQuantity, groups_like

_MAX_TRIALS, _MAX_RUNS = 200, 50
"""Numbers of the lab's most recent measured trials and training runs of a model that count."""


@dataclass(frozen=True)
class ErrorRow:
    """One row of the table.

    Attributes:
        models: The models compared.
        where: The GPU, and who measured.
    """

    models: str
    where: str
    errors: Errors

    @property
    def median(self) -> str:
        return fine_share(self.errors.median)

    @property
    def percentile_90(self) -> str:
        """Empty where there are too few."""
        most = self.errors.percentile_90
        return "" if most is None else f"±{fine_share(most)}"


@dataclass(frozen=True)
class PastErrors:
    """The errors of one kind of prediction, those of the most similar models first."""

    rows: list[ErrorRow]
    is_measured_here: bool


def past_errors(analysis: Analysis, result: AnalysisResult) -> dict[str, PastErrors]:
    """The past errors of memory and of step times, by the name of the tab that shows them."""
    gpu = catalogue_name(result.gpu.name) or ""
    name, program = analysis.model, analysis.program_hash  # scripts share names
    runs = TrainingRun.objects.filter(analysis__model=name, analysis__program_hash=program)
    measured = Analysis.objects.filter(
        model=name, program_hash=program, source=FigureSource.MEASURED
    )
    # Each has trials: so many analyses are enough, and are found by an index.
    newest = measured.order_by("-pk").values("pk")[:_MAX_TRIALS]
    trials = measured_trials().filter(analysis__in=newest)[:_MAX_TRIALS]
    here = [*training_runs_of(runs, _MAX_RUNS), *step_times_of(trials)]
    model_type = _type_of(result)
    return {
        "memory": _past(PredictedQuantity.MEMORY, here, model_type, gpu),
        "speed": _past(PredictedQuantity.STEP_TIME, here, model_type, gpu),
    }


def _past(of: PredictedQuantity, here: Sequence[Compared], model_type: str, gpu: str) -> PastErrors:
    compared = [one for one in here if one.of is of]
    on_gpu = [one for one in compared if gpu and one.gpu == gpu]
    own = Errors.of(one.error for one in on_gpu or compared)
    rows = []
    if own is not None:
        rows.append(ErrorRow("This model", f"{_name(gpu if on_gpu else '')}, your lab", own))
    rows += [
        ErrorRow(_models(group), f"{_name(group.gpu)}, published", group.errors)
        for group in groups_like(of, model_type, gpu)
    ]
    return PastErrors(rows, own is not None)


def _name(gpu: str) -> str:
    return GPUS[gpu].display_name if gpu in GPUS else "all GPUs"


def _models(group: Group) -> str:
    names = {ALL: "All models", "transformers": "Transformers", "convolutional": "Convolutional"}
    return names.get(group.models, f"Models of type {group.models}")


def _type_of(result: AnalysisResult) -> str:
    """The ``model_type`` of the config; empty where it is not known."""
    try:
        config = result.workload.preset.config() if result.workload else {}
    except LookupError:
        return ""
    return str(config.get("model_type", ""))
