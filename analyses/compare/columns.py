"""One column of a comparison: an analysis, its answer, and a short name that tells it apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyses.models import Analysis
from analyses.question import gpu_of, model_name
from analyses.stored_result import result_of, source_at, trial_at
from engine.result import AnalysisResult, Source, Trial

_PARTS: tuple[Callable[[Analysis], str], ...] = (
    lambda analysis: model_name(analysis.model),
    gpu_of,
    lambda analysis: analysis.precision,
    lambda analysis: analysis.optimizer,
    lambda analysis: f"from batch {analysis.current_batch_size:,}",
)
_GPU = 1


@dataclass(frozen=True)
class Column:
    """An analysis in a comparison.

    Attributes:
        label: What tells it apart from the others, in a few words.
        result: ``None`` while it has no answer, or none that can be read.
    """

    analysis: Analysis
    label: str
    result: AnalysisResult | None

    @property
    def pk(self) -> int:
        """Its number."""
        return int(self.analysis.pk)

    @property
    def recommended(self) -> Trial | None:
        """What is known of the recommended batch."""
        result = self.result
        return trial_at(result, result.recommended_batch_size) if result else None

    @property
    def recommended_source(self) -> Source | None:
        """Where the figures of the recommended batch come from."""
        result = self.result
        return source_at(result, result.recommended_batch_size) if result else None


def columns_of(analyses: Sequence[Analysis]) -> list[Column]:
    """A column for each analysis, in this order."""
    labels = _labels(analyses)
    return [
        Column(analysis, label, result_of(analysis))
        for analysis, label in zip(analyses, labels, strict=True)
    ]


def title_of(columns: Sequence[Column]) -> str:
    """What all have in common, such as ``BERT base``; of several models a general word."""
    models = {model_name(column.analysis.model) for column in columns}
    return models.pop() if len(models) == 1 else "Analyses compared"


def _labels(analyses: Sequence[Analysis]) -> list[str]:
    """As many of the parts that differ as tell them apart; the number where all are not enough."""
    named = [[part(analysis) for part in _PARTS] for analysis in analyses]
    differing = [n for n in range(len(_PARTS)) if len({parts[n] for parts in named}) > 1] or [_GPU]
    labels: list[str] = []
    for count in range(1, len(differing) + 1):
        labels = [" · ".join(parts[n] for n in differing[:count]) for parts in named]
        if len(set(labels)) == len(labels):
            break
    return [
        f"{label} · #{analysis.pk}" if labels.count(label) > 1 else label
        for label, analysis in zip(labels, analyses, strict=True)
    ]
