"""Serializers of analyses, requests and results, made from data classes where there is one.

Sizes are bytes, times are seconds; nothing is rounded.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

from drf_spectacular.utils import (
    OpenApiExample,
    PolymorphicProxySerializer,
    extend_schema_field,
    extend_schema_serializer,
)
from rest_framework import serializers

from analyses.figures.decision import DecisionFigures, decision_figures
from analyses.jobs.plans import Awaited, awaited
from analyses.models import Analysis, Project, Status, Tag, pushed_from
from analyses.models import Trial as TrialRow
from analyses.pages.history.labels import note_of
from analyses.results.decided import decided_moves
from analyses.results.stored import tokens_in
from engine.core.fields import Field as DescribedField
from engine.core.fields import described_fields
from engine.interface.program import (
    MAX_NAME_LENGTH,
    MAX_WORD_LENGTH,
    MAX_WORDS,
    PROGRAM_FIELDS,
    ProgramRequest,
)
from engine.interface.request import FIELDS, AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.interface.trial import Source, Trial
from engine.recipes import FRAMEWORKS, any_framework

Field = serializers.Field[Any, Any, Any, Any]

_PLAIN: Mapping[Any, type[Field]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
}


def serializer_of(
    kind: type, *, required: bool = True, name: str = ""
) -> type[serializers.Serializer[Any]]:
    """A serializer with the fields of a data class, each described by the docstring.

    It takes anything with these attributes or keys, such as a row of the database.

    Args:
        kind: The data class.
        required: Whether all fields are always present. Not so if another version stored it; the
            name in the schema then starts with ``Stored``.
        name: Its name in the schema; the data class's name if empty.
    """
    return _made(kind, required, name or f"{'' if required else 'Stored'}{kind.__name__}")


@cache
def _made(kind: type, required: bool, name: str) -> type[serializers.Serializer[Any]]:
    """Cached, since a name may be in the schema only once."""
    meaning, hints = meanings(kind), typing.get_type_hints(kind)
    body: dict[str, Any] = {
        field.name: _field(hints[field.name], required, meaning.get(field.name, ""))
        for field in fields(kind)
    }
    body["__doc__"] = (inspect.getdoc(kind) or "").split("\n")[0]
    return type(f"{name}Serializer", (serializers.Serializer,), body)


def meanings(kind: type) -> dict[str, str]:
    """The description of each attribute in the docstrings of a data class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            found |= dict(_described(inspect.getdoc(base) or ""))
    return found | {name: field.described.help for name, field in described_fields(kind).items()}


def _described(docstring: str) -> Iterator[tuple[str, str]]:
    _, _, listed = docstring.partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", listed)[0]
    for entry in re.split(r"\n(?= {4}\S)", section):
        names, _, text = entry.strip().partition(":")
        meaning = " ".join(text.replace("``", "").split())
        yield from ((name.strip(), meaning) for name in names.split(",") if meaning)


def _field(hint: Any, required: bool, meaning: str, **options: Any) -> Field:
    options |= {"required": required, "help_text": meaning}
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        options["allow_null"] = True
    if hint in _PLAIN:
        return _PLAIN[hint](**options)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return serializers.ChoiceField([(one.value, one.name) for one in hint], **options)
    if is_dataclass(hint) and isinstance(hint, type):
        return serializer_of(hint, required=required)(**options)
    return _collection(typing.get_origin(hint), typing.get_args(hint), options)


def _collection(origin: Any, inside: tuple[Any, ...], options: dict[str, Any]) -> Field:
    if origin is dict:
        if inside[1] is Any:
            return serializers.DictField(**options)
        return serializers.DictField(child=_field(inside[1], True, ""), **options)
    if is_dataclass(inside[0]) and isinstance(inside[0], type):
        return serializer_of(inside[0], required=options["required"])(many=True, **options)
    return serializers.ListField(child=_field(inside[0], True, ""), **options)


RECIPE, FRAMEWORK = "recipe", "framework"
_RECIPE = (
    f"The text of a recipe of {any_framework()}, in place of the fields that it sets. Fields "
    "beside it win. It cannot refer to other files."
)

EXAMPLE = OpenApiExample(
    "BERT on an A10",
    {"model": "bert", "gpu": "a10", "current_batch_size": 16, "precision": "bf16-mixed"},
    request_only=True,
)


@extend_schema_serializer(component_name="Question")
class RequestSerializer(serializers.Serializer[Any]):
    """The settings of an analysis: a workload, a GPU, the current batch size and annual cost.

    Fields that are left out, empty or null take their defaults; only null as the current batch size
    means that there is none yet. Numbers may be text.
    """

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Fields from the registry, like those of the command line and the form, and a recipe's."""
        made = {name: _request_field(field) for name, field in FIELDS.items()}
        names = [(name, one.title) for name, one in FRAMEWORKS.items()]
        about = "The framework of the recipe, where its keys do not tell."
        return {
            **made,
            RECIPE: serializers.CharField(write_only=True, required=False, help_text=_RECIPE),
            FRAMEWORK: serializers.ChoiceField(
                names, write_only=True, required=False, help_text=about
            ),
        }


PROJECT = "project"


@extend_schema_serializer(component_name="Submission")
class SubmissionSerializer(RequestSerializer):
    """The settings of an analysis, and the project that it belongs to."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Fields of a request, and the project."""
        about = "Name of a lab project, made if it is new; empty or null for none."
        project = serializers.RegexField(
            r"^[^\x00]*$",
            required=False,
            allow_blank=True,
            allow_null=True,
            max_length=Project.MAX_LENGTH,
            help_text=about,
        )
        return {**super().get_fields(), PROJECT: project}


class TracedProgramSerializer(serializers.Serializer[Any]):
    """Facts about a script besides its name; none of it is ever run."""

    hash = serializers.RegexField(
        r"^[0-9a-f]{64}$",
        help_text="Hash of what was traced, which the analysis gave as program_hash.",
    )
    words = serializers.ListField(
        child=serializers.CharField(max_length=MAX_WORD_LENGTH),
        max_length=MAX_WORDS,
        required=False,
        help_text="Arguments of memorymark analyze that name it, before its flags.",
    )
    arguments = serializers.ListField(
        child=serializers.CharField(max_length=MAX_WORD_LENGTH),
        max_length=MAX_WORDS,
        required=False,
        help_text="The script's own arguments, which follow --.",
    )


@extend_schema_serializer(component_name="ProgramQuestion")
class ProgramRequestSerializer(serializers.Serializer[Any]):
    """The settings of an analysis of your own script, which ran outside the lab."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The name and the hash, and what a script does not decide itself."""
        settings = {name: _request_field(FIELDS[name]) for name in FIELDS if name in PROGRAM_FIELDS}
        name = serializers.CharField(
            max_length=MAX_NAME_LENGTH, help_text="Name of the script, such as train.py."
        )
        return {"model": name, "program": TracedProgramSerializer(), **settings}


_REQUESTS: Mapping[type, type[serializers.Serializer[Any]]] = {
    AnalysisRequest: RequestSerializer,
    ProgramRequest: ProgramRequestSerializer,
}


def _request_field(field: DescribedField) -> Field:
    """One field, for the schema; the engine checks its value."""
    options: dict[str, Any] = {"allow_null": True}
    about = field.described.help
    if field.takes_none:
        about += f" Null: {field.described.empty}; left out: {field.default_text}."
    if field.bounds:
        options |= {"min_value": field.bounds.ge, "max_value": field.bounds.le}
    if field.kind is str:
        options["allow_blank"] = True
    return _field(field.kind, field.name == "gpu", about, **options)


_TrialFields: Any = serializer_of(Trial)


class TrialSerializer(_TrialFields):  # type: ignore[misc]  # a class made above
    """One batch size tried, as it is stored."""

    tokens_per_second = serializers.SerializerMethodField()

    def get_tokens_per_second(self, trial: TrialRow) -> float | None:
        """Samples per second times the tokens of a sample; null unless the whole input is text."""
        tokens = tokens_in(trial.analysis)
        return tokens.per_second(trial.samples_per_second) if tokens else None


def stored_serializer(kind: type) -> type[serializers.Serializer[Any]]:
    """The serializer of a data class that is stored, or sent by another version."""
    return _REQUESTS.get(kind) or serializer_of(kind, required=False)


class FailureSerializer(serializers.Serializer[Any]):
    """Why an analysis has no answer with its own settings."""

    code = serializers.CharField(help_text="A stable word for programs, such as does_not_fit.")
    reason = serializers.CharField(help_text="What happened, for a person.")


DecisionSerializer = serializer_of(DecisionFigures)


class AnalysisSummarySerializer(serializers.ModelSerializer[Analysis]):
    """An analysis in a list."""

    url = serializers.HyperlinkedIdentityField(view_name="api:analysis-detail")
    owner = serializers.CharField(source="owner.username")
    status = serializers.ChoiceField(Status.choices)
    adopted_by = serializers.CharField(
        source="adopted_by.username", default=None, allow_null=True, read_only=True
    )
    source = serializers.ChoiceField(  # type: ignore[assignment]  # a field, not its source
        [(one.value, one.name) for one in Source],
        allow_blank=True,
        help_text="Whether the result is measured, predicted or computed; empty without one.",
    )
    project = serializers.CharField(
        source="project.name", default=None, allow_null=True, read_only=True
    )
    outcome = serializers.CharField(
        read_only=True,
        help_text="The status; does_not_fit instead of failed where that is the answer. Batches "
        "and decision are then those of the changes with which it fits, if any is known.",
    )
    moves = serializers.SerializerMethodField()
    failure = serializers.SerializerMethodField()
    pushed_from = serializers.SerializerMethodField()
    tags = serializers.SlugRelatedField[Tag](slug_field="name", many=True, read_only=True)

    class Meta:
        model = Analysis
        fields: tuple[str, ...] = (
            "id", "url", "owner", "status", "outcome", "model", "program_hash", "gpu",
            "precision", "optimizer", "software", "measured_gpu", "current_batch_size", "queued_at",
            "started_at", "finished_at", "node", "attempt", "answered_from", "pushed_from",
            "source", "goal", "largest_batch_size", "longest_tokens", "recommended_batch_size",
            "worst_tokens", "padding", "speedup", "usd_per_year", "gpu_hours_per_year",
            "kwh_per_year", "kg_co2e_per_year", "moves", "adopted_at", "adopted_by", "failure",
            "project", "tags",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {  # noqa: RUF012  # as Django REST framework has it
            "model": {"help_text": "Name of the model; of your own script, its name."},
            "program_hash": {
                "help_text": "Hash of what was traced of a script; empty for a model. Precision "
                "and optimizer, which a script decides itself, are then empty."
            },
            "software": {"help_text": FIELDS["software"].described.help},
            "measured_gpu": {"help_text": "The GPU it is measured on; empty for a prediction."},
            "attempt": {"help_text": "How many workers have started it so far."},
            "answered_from": {"help_text": "The earlier analysis whose result was reused, if any."},
            "largest_batch_size": {
                "help_text": "The largest batch that fits; where predicted, that may: the largest "
                "that surely fits is safe_batch_size of the result."
            },
            "current_batch_size": {"help_text": "Null where the member had no batch yet."},
            "goal": {"help_text": "batch, generation or length."},
            "longest_tokens": {
                "help_text": "The longest text that fits at the current batch; null where the goal "
                "is a batch."
            },
            "worst_tokens": {
                "help_text": "Tokens of the longest row of a batch that comes in a run; null where "
                "all samples are of one length."
            },
            "padding": {"help_text": "Share of all tokens that is padding; null as above."},
            "speedup": {
                "help_text": "Samples per second at the recommended batch over those at the "
                "current batch; null without one that fits."
            },
            "usd_per_year": {"help_text": "Savings, with assumed hours, runs and price."},
            "gpu_hours_per_year": {"help_text": "Savings, with assumed hours and runs."},
            "kwh_per_year": {
                "help_text": "Savings of the GPUs' energy, with predicted power and assumed hours "
                "and runs; null where the GPU's power is not known."
            },
            "kg_co2e_per_year": {"help_text": "The same times the grid's assumed intensity."},
        }

    def get_moves(self, analysis: Analysis) -> list[str]:
        """The changes that the batches, speedup and savings are with; empty for the batch alone."""
        return decided_moves(analysis)

    @extend_schema_field(FailureSerializer(allow_null=True))
    def get_failure(self, analysis: Analysis) -> dict[str, str] | None:
        """Code and reason; null unless it failed."""
        if not analysis.failure_code:
            return None
        return {"code": analysis.failure_code, "reason": analysis.failure_reason}

    def get_pushed_from(self, analysis: Analysis) -> str | None:
        """The host outside the lab that it ran on; null if the lab ran it."""
        return pushed_from(analysis)


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="AnyQuestion",
        serializers=[RequestSerializer, ProgramRequestSerializer],
        resource_type_field_name=None,
    )
)
class RequestField(serializers.JSONField):
    """The settings as they are stored."""


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="AnyResult",
        serializers=[stored_serializer(AnalysisResult), stored_serializer(TextResult)],
        resource_type_field_name=None,
    )
)
class ResultField(serializers.JSONField):
    """A result as it is stored: about batches, or about texts where the goal is."""


class AnalysisSerializer(AnalysisSummarySerializer):
    """An analysis with its request, trials and result."""

    trials = TrialSerializer(many=True)
    decision = serializers.SerializerMethodField()
    decision_is_final = serializers.SerializerMethodField()
    decision_waits_for = serializers.SerializerMethodField()
    note = serializers.SerializerMethodField()
    adopted_moves = serializers.SerializerMethodField()
    tokens_per_sample = serializers.SerializerMethodField()
    request = RequestField()
    result = ResultField(allow_null=True)
    assumed_by = serializers.DictField(
        child=serializers.CharField(),
        help_text="The source of each assumption, by name: lab, catalogue or default; else the "
        "owner. Default are the settings that decide the answer and were left out.",
    )

    recipe = serializers.DictField(
        allow_null=True,
        help_text="Where the settings were read from a recipe: its framework, release and source, "
        "the keys that were read, assumed and not used, fields given beside it, notes and fields.",
    )

    class Meta(AnalysisSummarySerializer.Meta):
        fields = (
            *AnalysisSummarySerializer.Meta.fields, "decision", "decision_is_final",
            "decision_waits_for", "note", "adopted_moves", "request", "assumed_by", "recipe",
            "tokens_per_sample", "trials", "result",
        )  # fmt: skip
        read_only_fields = fields

    def get_adopted_moves(self, analysis: Analysis) -> list[str]:
        """The moves adopted with the batch, such as bf16; empty for the batch alone."""
        return decided_moves(analysis) if analysis.adopted_at else []

    @extend_schema_field(DecisionSerializer(allow_null=True))
    def get_decision(self, analysis: Analysis) -> dict[str, Any] | None:
        """The decision with its numbers, as every page shows it; null while there is no answer."""
        found = decision_figures(analysis)
        return None if found is None else asdict(found)

    def get_decision_is_final(self, analysis: Analysis) -> bool:
        """Whether no plan may change the decision by itself; false while the analysis runs."""
        return self._awaited is None

    @extend_schema_field(serializers.ChoiceField(list(Awaited), allow_null=True))
    def get_decision_waits_for(self, analysis: Analysis) -> str | None:
        """It waits for the analysis, its plan, or a worker; null once final."""
        return self._awaited

    @cached_property
    def _awaited(self) -> Awaited | None:
        analysis = self.instance
        assert isinstance(analysis, Analysis)  # noqa: S101  # it is never of many
        return awaited(analysis)

    def get_note(self, analysis: Analysis) -> str | None:
        """Null if there is none."""
        return note_of(analysis)

    def get_tokens_per_sample(self, analysis: Analysis) -> int | None:
        """Its sequence length, of the source if it has a target; null unless all input is text."""
        tokens = tokens_in(analysis)
        return tokens.per_sample if tokens else None
