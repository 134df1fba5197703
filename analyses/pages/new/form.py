"""The form of a new analysis; the engine validates its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from analyses import services
from analyses.formatting import plain_number
from analyses.jobs import lab_state
from analyses.lab.projects import projects_in_use
from analyses.lab.settings import LAB_DEFAULTS, lab_settings
from analyses.models import Analysis
from analyses.pages.history.labels import ProjectField, add_tags
from analyses.pages.new.combinations import combinations
from analyses.pages.new.questions import USUAL_PRECISION, Question, usual_precision
from analyses.pages.new.sweep import BATCHES, INPUTS, Sweep, words_of
from analyses.pages.new.widgets import (
    OTHER_MODEL,
    ModelSelect,
    area,
    compared_gpus,
    compared_software,
    gpu_choices,
    input_for,
    model_choices,
    model_facts,
    number,
    preset_choices,
    select,
    size_help,
    software_choices,
    text,
    tick,
    ticks,
    timm_names,
)
from analyses.results.recipes import FRAMEWORK_LABEL, read_beside, stored
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.core.fields import Group
from engine.gpus import ANY, GPUS, LOCAL
from engine.interface.goals import TEXTS, counts
from engine.interface.request import DEFAULTS, FIELDS
from engine.interface.texts import SUGGESTED
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import SIZES
from engine.recipes import FRAMEWORKS, any_framework

BATCH_TO_CHECK = "batch_to_check"
"""Stands for the current batch where the question is whether it fits, or the longest sequence."""

TEXTS_AT_ONCE = "texts_at_once"
"""Stands for the current batch where texts are generated."""

RECIPE, RECIPE_BESIDE, RECIPE_FRAMEWORK = "recipe", "recipe_beside", "recipe_framework"
"""The recipe that has filled in the form, the names of the fields that stood beside it, and its
framework where its keys do not tell."""
UNREAD = "?"
"""Stands for these names while a recipe waits for its framework to be chosen."""

PROJECT, _EXAMPLE = "project", "thesis"
"""The project of the lab that the analysis belongs to."""

_TRAINED = (
    "precision", "optimizer", *SIZES, "lora_rank", "quantization", "gradient_checkpointing",
)  # fmt: skip
NO_BATCH = "no_batch"
"""The box that stands for a current batch that there is not."""

_LIMITS = ("most_usd_per_hour", "most_hours_per_million")
_WHERE = ("gpu", BATCH_TO_CHECK, "current_batch_size", NO_BATCH, *_LIMITS)
"""The fields that are always in sight; the others are folded."""

BATCH_OF = {
    Question.FIT: BATCH_TO_CHECK,
    Question.LENGTH: BATCH_TO_CHECK,
    Question.GENERATION: TEXTS_AT_ONCE,
}
"""The input of the batch, where it is not the current one's."""

_OF_ONE_GPU = ("price_per_hour_usd", "memory_limit_bytes")

_USUALLY = "Usual is bf16-mixed where the GPU has bf16, else fp16-mixed."


@dataclass(frozen=True)
class FieldGroup:
    """Fields under a title.

    Attributes:
        summary: The settings that are not at their defaults; empty if there are none.
        is_open: Whether the page shows them at once: something is set, or wrong.
        left_out: The classes of questions that none of them belongs to.
    """

    key: Group
    title: str
    fields: list[forms.BoundField]
    summary: str = ""
    is_open: bool = False
    left_out: str = ""


class AnalysisForm(forms.Form):
    """A new analysis as raw text; :meth:`submit` has the engine check it.

    The fields are those of :data:`engine.interface.request.FIELDS`, in that order, by which the
    first error is found. A model that is no preset has two inputs: its ID and its config. The
    question decides which fields count.
    """

    def __init__(self, *args: Any, mistake: InvalidInput | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._mistake = mistake
        self.asks_hub: bool = settings.ASKS_HUB
        self.fields |= self._model_inputs()
        for name, described in FIELDS.items():
            if described.group is not Group.MODEL and name != "goal":  # the question has it
                self.fields[name] = input_for(described)
        gpu = FIELDS["gpu"]
        self.fields["gpu"] = select(gpu.label, gpu_choices(), gpu.described.help)
        self.fields |= self._question_inputs()
        self.fields |= {name: _hidden() for name in (RECIPE, RECIPE_BESIDE)}
        frameworks = [("", "Choose one"), *((one.name, one.title) for one in FRAMEWORKS.values())]
        about = "Its keys do not tell which."
        self.fields[RECIPE_FRAMEWORK] = select(FRAMEWORK_LABEL, frameworks, about)
        self.fields[PROJECT] = ProjectField(f"For your lab's history, e.g. {_EXAMPLE}.")
        self._offer_software()
        chosen = str(self["model"].value())
        for name in SIZES:
            self.fields[name].help_text = size_help(chosen, name)
        lab = lab_settings()
        self._usual = {name: str(value) for name, value in DEFAULTS.items()}
        for name in LAB_DEFAULTS:
            self._usual[name] = plain_number(getattr(lab, name))
        for name in self.fields.keys() & FIELDS.keys():
            self.fields[name].left_out = _left_out(name)  # type: ignore[attr-defined]  # template's

    def _question_inputs(self) -> dict[str, forms.Field]:
        precision, current = FIELDS["precision"], FIELDS["current_batch_size"]
        precisions = precision.choices
        return {
            "ask": forms.CharField(
                required=False,
                widget=forms.RadioSelect(choices=[(one, one.label) for one in Question]),
            ),
            BATCH_TO_CHECK: number("Batch to check (samples)", "Samples per step, per GPU.", "16"),
            TEXTS_AT_ONCE: number("Texts at once", "Generated together, as one batch.", "1"),
            current.name: number(
                current.label_with_unit, current.described.help, current.default_text
            ),
            NO_BATCH: tick(
                "I have no batch yet",
                "You get one to start with. No speedup or savings are claimed.",
            ),
            "precision": select(
                precision.label,
                [*precisions, (USUAL_PRECISION, "usual for the GPU")],
                f"{precision.described.help} {_USUALLY}",
            ),
            "compared_models": ticks("Models", preset_choices()),
            "compared_precisions": ticks("Precisions", [(value, value) for value, _ in precisions]),
            BATCHES: text("Batches (samples)", "Current batch sizes, with commas.", "8, 16, 32"),
            "compared_gpus": ticks("GPUs", compared_gpus()),
        }

    def _offer_software(self) -> None:
        described, offered = FIELDS["software"], lab_state.software_offered()
        self.fields["software"] = select(described.label, [], described.described.help)
        chosen = str(self["software"].value() or "")
        self.fields["software"].widget.choices = software_choices(offered, chosen)
        self.fields["compared_software"] = ticks("Software", compared_software(offered))

    def _model_inputs(self) -> dict[str, forms.Field]:
        config = FIELDS["config"]
        about_id = (
            "Only its config.json is fetched: no weights, no code. With a config below, any name "
            "will do."
            if self.asks_hub
            else "This lab does not use the Hugging Face Hub (MEMORYMARK_HUB=off). Add the config "
            "below, under any name."
        )
        return {
            "model": forms.CharField(required=False, widget=ModelSelect(choices=model_choices())),
            "other_model": text("Hugging Face ID", about_id, "org/name"),
            "config": area(
                config.label,
                config.described.help,
                '{"model_type": "bert", "hidden_size": 768, …}',
            ),
        }

    def clean(self) -> None:
        super().clean()
        if self._mistake is not None:
            self.add_messages(self._mistake)

    @property
    def question(self) -> Question:
        asked = str(self["ask"].value() or "")
        return Question(asked) if asked in list(Question) else Question.BATCH

    def submit(self, owner: User) -> list[Analysis]:
        """Submit the analysis, or all that are compared; none if the form now has errors."""
        try:
            if self.question is Question.COMPARE:
                return self._submit_compared(owner)
            return [self._submit(owner, self.raw_fields())]
        except InvalidInput as error:
            self.add_messages(error)
            return []

    def _submit(self, owner: User, fields: Mapping[str, object]) -> Analysis:
        text = self.cleaned_data[RECIPE]
        given, _ = services.split_gpu(fields)
        framework = self.cleaned_data[RECIPE_FRAMEWORK] or None
        read = read_beside(text, given, self.beside_recipe(), framework) if text else None
        return services.submit(
            owner,
            fields,
            recipe=stored(read) if read else None,
            project=self.cleaned_data[PROJECT],
        )

    @property
    def asks_for_framework(self) -> bool:
        """Whether a recipe waits for its framework to be chosen."""
        return bool(self[RECIPE_BESIDE].value() == UNREAD)

    def beside_recipe(self) -> list[str]:
        """Names of the fields that stood beside the recipe when it filled in the form."""
        names = str(self[RECIPE_BESIDE].value() or "").split(",")
        return [name for name in names if name in FIELDS and name in self.fields]

    def sweep(self) -> Sweep:
        return Sweep.of(self.cleaned_data)

    def _submit_compared(self, owner: User) -> list[Analysis]:
        """Submit one analysis for each combination of what is compared, all or none.

        Raises:
            InvalidInput: With the messages of the first wrong one, and which one that is.
        """
        sweep = self.sweep()
        if sweep.problem:
            raise InvalidInput({"compared_gpus": sweep.problem})
        analyses = []
        with transaction.atomic():
            for changes in sweep.each():
                try:
                    analyses.append(self._submit(owner, self.raw_fields(changes)))
                except InvalidInput as error:
                    which = words_of(changes)
                    wrong = {name: f"{which}: {text}" for name, text in error.fields.items()}
                    raise InvalidInput(wrong) from error
            add_tags(analyses, [f"comparison-{analyses[0].pk}"])
        return analyses

    def add_messages(self, error: InvalidInput) -> None:
        """Show the engine's messages at their fields."""
        for name, message in error.fields.items():
            self.add_error(self._place_of(name), f"{message[:1].upper()}{message[1:]}.")

    def raw_fields(self, changes: Mapping[str, str] = MappingProxyType({})) -> dict[str, object]:
        """The typed values, without the fields that do not apply and are hidden on the page.

        A value left in one of them is not the user's mistake.

        Args:
            changes: Instead of what was typed.
        """
        given = {**self.cleaned_data, **changes}
        goal, checked, at_once = self.question.goal, given[BATCH_TO_CHECK], given[TEXTS_AT_ONCE]
        other_model, config = given["other_model"], given["config"]
        has_none = given[NO_BATCH] and "current_batch_size" not in changes
        given |= {"goal": goal}
        given = {name: given[name] for name in FIELDS if name != "config" and counts(name, goal)}
        if self.question is Question.GPU:
            given |= dict.fromkeys(_OF_ONE_GPU, "") | {"gpu": ANY}
        else:
            given = {name: value for name, value in given.items() if name not in _LIMITS}
        if self.question in (Question.FIT, Question.LENGTH):
            given["current_batch_size"] = checked
        elif self.question is Question.GENERATION:
            given["current_batch_size"] = at_once or "1"
        elif has_none or self.question is Question.GPU:  # each GPU has its own best batch
            given["current_batch_size"] = None
        if given["precision"] == USUAL_PRECISION:
            given["precision"] = usual_precision(given["gpu"])
        if not given["gpu"].startswith(LOCAL):
            given.pop("compile", None)
        if given["model"] == OTHER_MODEL:
            return given | {"model": other_model, "config": config}
        preset = PRESETS.get(given["model"])
        for name in SIZES:
            if preset and preset.limits_for_any(name) is None:
                given.pop(name, None)
        return given

    def _place_of(self, name: str) -> str | None:
        """The input that shows the messages of an engine's field; ``None``: above the form."""
        if self.question is Question.COMPARE:  # whose page hides the inputs of one value
            compared = {field.name for field in self.compared()}
            if INPUTS.get(name) in compared:
                return INPUTS[name]
        if name == "current_batch_size":
            return BATCH_OF.get(self.question, name)
        if name == "model" and self.cleaned_data["model"] == OTHER_MODEL:
            return "other_model"
        return name if name in self.fields else None

    def offered_instead(self) -> list[Preset]:
        """Presets that suit the question, where the chosen model is wrong for it."""
        is_wrong = not {"model", "other_model", "task"}.isdisjoint(self.errors)
        names = SUGGESTED.get(self.question.goal, ()) if is_wrong else ()
        return [PRESETS[name] for name in names]

    def project_names(self) -> list[str]:
        return projects_in_use()

    def timm_names(self) -> list[str]:
        return timm_names()

    def combinations(self) -> list[dict[str, object]]:
        return combinations()

    def any_framework(self) -> str:
        return any_framework()

    def model_facts(self) -> str:
        return model_facts(str(self["model"].value()))

    def script_gpu(self) -> str:
        """The GPU that the command for a script names: the chosen one of the catalogue."""
        chosen = str(self["gpu"].value())
        return chosen if chosen in GPUS else "a10"

    def how_trained(self) -> list[forms.BoundField]:
        return [self[name] for name in _TRAINED]

    def where(self) -> list[forms.BoundField]:
        return [self[name] for name in _WHERE]

    def texts(self) -> list[forms.BoundField]:
        return [self[name] for name in (TEXTS_AT_ONCE, *TEXTS)]

    def compared(self) -> list[forms.BoundField]:
        """Fields that may be varied; software only where there is more than the lab's own."""
        offered = [name for name in INPUTS.values() if getattr(self.fields[name], "choices", True)]
        return [self[name] for name in offered]

    def advanced(self) -> list[FieldGroup]:
        """The fields that are rarely changed, in their groups.

        What a year costs is the lab's to set, and What if? on an answer tries other numbers: here
        it is only shown where an earlier analysis or such a try brings its own.
        """
        groups: dict[Group, list[forms.BoundField]] = {}
        in_sight = (*_TRAINED, *_WHERE)
        for name, described in FIELDS.items():
            if described.group not in (Group.MODEL, Group.TEXTS) and name not in in_sight:
                groups.setdefault(described.group, []).append(self[name])
        shown = [self._group(key, fields) for key, fields in groups.items()]
        return [group for group in shown if group.key is not Group.COST or group.is_open]

    def _group(self, key: Group, fields: list[forms.BoundField]) -> FieldGroup:
        for field in fields:
            field.field.widget.attrs["data-default"] = self._usual[field.name]
        changed = [
            field for field in fields if (field.value() or "") not in ("", self._usual[field.name])
        ]
        left_out = set.intersection(*(set(_left_out(field.name).split()) for field in fields))
        return FieldGroup(
            key,
            key.label,
            fields,
            summary=", ".join(f"{field.label}: {_shown(field)}" for field in changed),
            is_open=bool(changed) or any(field.errors for field in fields),
            left_out=" ".join(sorted(left_out)),
        )

    def focus_first_error(self) -> None:
        for name in self.fields:
            if name in self.errors:
                self.fields[name].widget.attrs["autofocus"] = True
                return


def _hidden() -> forms.CharField:
    return forms.CharField(required=False, strip=False, widget=forms.HiddenInput)


def _left_out(name: str) -> str:
    """The classes of the questions about texts that a field does not belong to."""
    about_texts = (Goal.GENERATION, Goal.LENGTH)
    return " ".join(f"not-{goal}" for goal in about_texts if not counts(name, goal))


def _shown(field: forms.BoundField) -> str:
    """The value of a field as its input shows it."""
    value, widget = str(field.value()), field.field.widget
    if isinstance(field.field, forms.BooleanField):
        return "on"
    choices = widget.choices if isinstance(widget, forms.Select) else ()
    return next((str(label) for one, label in choices if str(one) == value), value)
