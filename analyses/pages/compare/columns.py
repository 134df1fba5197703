"""The columns of a comparison: which analyses an address chooses, and their short labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from analyses.figures.answered import answered
from analyses.figures.chips import chips_of
from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis
from analyses.results.decided import decided_fields
from engine.answer.amounts import Answered
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial


@dataclass(frozen=True)
class Column:
    """An analysis in a comparison.

    Attributes:
        label: A few words that distinguish it from the others.
        place: Decides its colour; stays as it is when another analysis is removed.
    """

    analysis: Analysis
    label: str
    answered: Answered
    place: int

    @property
    def pk(self) -> int:
        return int(self.analysis.pk)

    @property
    def result(self) -> AnalysisResult | None:
        """``None`` while it has no answer, or none that can be read."""
        return self.answered.result

    @property
    def recommended(self) -> Trial | None:
        return self.answered.recommended


def columns_of(analyses: Sequence[Analysis], places: Sequence[int] = ()) -> list[Column]:
    """A column for each analysis, in this order; its place is its number if none are given."""
    labels = _labels(analyses)
    places = places or range(len(analyses))
    return [
        Column(analysis, label, answered(analysis), place)
        for analysis, label, place in zip(analyses, labels, places, strict=True)
    ]


def source_of(columns: Sequence[Column]) -> Source | None:
    """The source that all results have in common; ``None`` where they have several, or none."""
    used = {column.result.source for column in columns if column.result}
    return used.pop() if len(used) == 1 else None


def title_of(columns: Sequence[Column]) -> str:
    """The model that all have in common; a general title where there are several."""
    models = {model_name(column.analysis.model) for column in columns}
    return models.pop() if len(models) == 1 else "Analyses compared"


def _labels(analyses: Sequence[Analysis]) -> list[str]:
    """Enough differing parts to distinguish the analyses, with ids where those do not."""
    named = [_parts(analysis) for analysis in analyses]
    common = set(named[0]).intersection(*named) if named else set()
    differing = [[part for part in parts if part not in common] for parts in named]
    labels = [""] * len(named)
    for count in range(1, max(map(len, differing), default=0) + 1):
        labels = [" · ".join(parts[:count]) for parts in differing]
        if len(set(labels)) == len(labels):
            break
    labels = [label or gpu_of(analysis) for label, analysis in zip(labels, analyses, strict=True)]
    return [
        f"{label} · #{analysis.pk}" if labels.count(label) > 1 else label
        for label, analysis in zip(labels, analyses, strict=True)
    ]


def parts_of(analysis: Analysis, *, today: bool = False) -> list[str]:
    """Model, GPU and the other chips, with what the decision changes, as its numbers are with it.

    Args:
        analysis: The analysis.
        today: Leave the decision out, for numbers of today's settings.
    """
    decided = {} if today else decided_fields(analysis)
    *others, gpu = chips_of(analysis.request, gpu_of(analysis), decided)
    return [model_name(analysis.model), gpu, *others]


def _parts(analysis: Analysis) -> list[str]:
    """The same with the current batch."""
    size = analysis.current_batch_size
    return [*parts_of(analysis), "from no batch" if size is None else f"from batch {size:,}"]


MIN_ANALYSES = 2
MAX_ANALYSES = 24
"""As many as the form of a new analysis submits together."""

_MAX_ID_LENGTH = 18
"""Digits; databases cannot look up longer numbers."""

_MAX_KEY_LENGTH = 40
"""Characters; no number of a comparison has a longer key."""


@dataclass(frozen=True)
class Choice:
    """The analyses and options in the address of a comparison.

    Attributes:
        ids: The analyses, in the order of their columns.
        places: The place of each in the address, where removed ones leave a gap: ``45,,47``.
        base: The baseline; always one of ``ids`` if there are any.
        all_rows: Whether rows that are identical are shown too.
        x, y: The numbers on the axes of the scatter plot, untrusted; empty for the usual ones.
        problems: The errors in the address, a sentence each.
    """

    ids: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    base: int | None = None
    all_rows: bool = False
    x: str = ""
    y: str = ""
    problems: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: QueryDict) -> Choice:
        """Read an untrusted address.

        ``ids`` may be one comma-separated list, as in links, or occur several times, as checkboxes
        send it.
        """
        words = [word.strip() for part in query.getlist("ids") for word in part.split(",")]
        wrong = [word for word in dict.fromkeys(words) if word and not _is_id(word)]
        places: dict[int, int] = {}
        for place, word in enumerate(words):
            if _is_id(word):
                places.setdefault(int(word), place)
        ids = list(places)
        problems = []
        if wrong:
            problems.append(f"Not an analysis number: {', '.join(map(_cut, wrong))}.")
        if len(ids) > MAX_ANALYSES:
            problems.append(
                f"You can compare at most {MAX_ANALYSES} analyses. "
                f"Left out: {_listed(ids[MAX_ANALYSES:])}."
            )
        base = query.get("base", "").strip()
        kept = ids[:MAX_ANALYSES]
        has_room = all(places[pk] < MAX_ANALYSES for pk in kept)
        choice = cls(
            tuple(kept),
            tuple(places[pk] if has_room else number for number, pk in enumerate(kept)),
            None,
            query.get("all") == "1",
            query.get("x", "")[:_MAX_KEY_LENGTH],
            query.get("y", "")[:_MAX_KEY_LENGTH],
            tuple(problems),
        )
        return choice.with_base(int(base) if _is_id(base) else None, named=_cut(base))

    def of_those_found(self, found: Iterable[int]) -> Choice:
        """The choice without analyses that do not exist, which become a problem."""
        there = set(found)
        missing = [pk for pk in self.ids if pk not in there]
        if not missing:
            return self
        none = "There is no analysis" if len(missing) == 1 else "There are no analyses"
        problems = (*self.problems, f"{none} {_listed(missing)}.")
        return replace(self._only(there), problems=problems)

    def with_base(self, base: int | None, named: str = "") -> Choice:
        """The choice with another baseline, or with the first analysis if that is none of them."""
        first = next(iter(self.ids), None)
        if base in self.ids:
            return replace(self, base=base)
        problem = f"Baseline {named} is not among these analyses; using analysis {first}."
        return replace(
            self,
            base=first,
            problems=(*self.problems, problem) if named and first else self.problems,
        )

    def without(self, pk: int) -> Choice:
        return self._only(set(self.ids) - {pk})

    def _only(self, kept: set[int]) -> Choice:
        """The choice of those, each at its place."""
        placed = {pk: at for pk, at in zip(self.ids, self.places, strict=True) if pk in kept}
        base = self.base if self.base in kept else next(iter(placed), None)
        return replace(self, ids=tuple(placed), places=tuple(placed.values()), base=base)

    @property
    def listed(self) -> str:
        """The analyses as an address has them, each at its place."""
        words = [""] * (max(self.places, default=-1) + 1)
        for pk, place in zip(self.ids, self.places, strict=True):
            words[place] = str(pk)
        return ",".join(words)

    def address(self, name: str = "analyses:compare") -> str:
        if not self.ids:
            return reverse(name)
        fields = {"ids": self.listed, "base": self.base, "all": "1" if self.all_rows else ""}
        fields |= {"x": self.x, "y": self.y}
        given = {name: value for name, value in fields.items() if value}
        return f"{reverse(name)}?{urlencode(given, safe=',')}"


def history_address(columns: Sequence[Column]) -> str:
    """The history with the analyses of these columns ticked.

    It shows those of their model, if they have one in common: these are mostly what is compared.
    """
    models = {column.analysis.model for column in columns}
    fields = {"model": models.pop()} if len(models) == 1 else {}
    if columns:
        fields["tick"] = ",".join(str(column.pk) for column in columns)
    return f"{reverse('analyses:list')}{'?' if fields else ''}{urlencode(fields, safe=',')}"


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MAX_ID_LENGTH


def _cut(word: str) -> str:
    return word if len(word) <= 20 else f"{word[:20]}…"


def _listed(ids: Sequence[int]) -> str:
    *rest, last = map(str, ids)
    return f"{', '.join(rest)} and {last}" if rest else last
