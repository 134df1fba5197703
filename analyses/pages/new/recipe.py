"""A recipe of a training framework that is uploaded with the form, and fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from analyses.pages.new.form import (
    BATCH_OF,
    RECIPE,
    RECIPE_BESIDE,
    RECIPE_FRAMEWORK,
    UNREAD,
    AnalysisForm,
)
from analyses.pages.new.questions import Question
from analyses.pages.new.sweep import chosen_to_compare
from analyses.pages.new.values import default_values, typed_values, values_of
from analyses.results.recipes import with_labels
from analyses.services import split_gpu
from engine.core.errors import InvalidInput
from engine.gpus import ANY
from engine.interface.request import FIELDS, AnalysisRequest
from engine.recipes import InvalidRecipe, Recipe, UnknownFramework, parse_recipe

RECIPE_FILE = "recipe_file"
"""The file input; its text goes with the form from then on, in the field ``recipe``."""

_LAUNCHED = "world_size"
"""The launcher decides it, and few recipes have it."""

_OF_THE_FORM = ("ask", "gpu", "most_usd_per_hour", "most_hours_per_million")


@dataclass(frozen=True)
class FilledIn:
    """The recipe that a form was filled in from.

    Attributes:
        framework: Name and release of the framework.
        about: What was read, assumed and not used, in sentences.
    """

    framework: str
    about: list[str]

    @classmethod
    def of(cls, recipe: Recipe) -> FilledIn:
        about = [with_labels(sentence) for sentence in recipe.caveats()]
        return cls(recipe.framework.named, about)


def form_of_upload(
    posted: QueryDict, files: MultiValueDict[str, UploadedFile[bytes]]
) -> tuple[AnalysisForm, FilledIn | None] | None:
    """The form filled in from an uploaded recipe; ``None`` if there is none.

    A recipe that is refused leaves the form as it was sent, with a message for each of its keys.
    One whose keys do not tell its framework waits in the form until that is chosen.
    """
    upload, waits = files.get(RECIPE_FILE), posted.get(RECIPE_BESIDE) == UNREAD
    if upload is None and not waits:
        return None
    if upload is None:
        text = posted.get(RECIPE, "").encode()
    else:  # takes the place of an earlier one
        text = upload.read()
        earlier = {RECIPE: "", RECIPE_BESIDE: ""} if waits else {}
        posted = _with(posted, {**earlier, RECIPE_FRAMEWORK: ""})
    framework = posted.get(RECIPE_FRAMEWORK, "")
    try:
        recipe, beside = _read(text, posted, framework)
    except UnknownFramework as error:
        waiting = _with(posted, {RECIPE: text.decode(), RECIPE_BESIDE: UNREAD})
        return _with_messages(AnalysisForm(waiting), error), None
    except InvalidInput as error:
        return _with_messages(AnalysisForm(posted), error), None
    values, problem = _filled(recipe, beside, posted)
    values |= {
        RECIPE: text.decode(), RECIPE_BESIDE: ",".join(beside), RECIPE_FRAMEWORK: framework,
    }  # fmt: skip
    if problem is not None:
        return _with_messages(AnalysisForm(values), problem), FilledIn.of(recipe)
    return AnalysisForm(initial={**chosen_to_compare(values), **values}), FilledIn.of(recipe)


def filled_in(form: AnalysisForm) -> FilledIn | None:
    """The recipe of a form that comes back; ``None`` if it has none."""
    text = str(form[RECIPE].value() or "")
    if not text:
        return None
    typed = {name: form[name].value() for name in form.beside_recipe()}
    framework = str(form[RECIPE_FRAMEWORK].value() or "") or None
    try:
        return FilledIn.of(parse_recipe(text, typed, framework))
    except InvalidInput:
        return None


def _read(text: bytes, posted: QueryDict, framework: str) -> tuple[Recipe, dict[str, str]]:
    """The recipe, with what stands beside it: what the form has where the recipe lacks something.

    Raises:
        UnknownFramework: If its keys do not tell its framework, and it was not chosen.
        InvalidInput: With a message for each of its keys.
    """
    usual = default_values()
    changed = {
        name: str(posted[name])
        for name in FIELDS
        if posted.get(name) and posted[name] != usual.get(name) and name != "gpu"
    }
    several = {name: value for name, value in changed.items() if name == _LAUNCHED}
    named = framework or None
    has_filled_in = posted.get(RECIPE) and posted.get(RECIPE_BESIDE) != UNREAD
    try:
        return parse_recipe(text, several, named), several
    except UnknownFramework:
        raise
    except InvalidRecipe:
        if changed == several or has_filled_in:
            raise
        return parse_recipe(text, changed, named), changed


def _filled(
    recipe: Recipe, beside: Mapping[str, str], posted: QueryDict
) -> tuple[dict[str, str], InvalidInput | None]:
    """The values of the form, and what is wrong with them, by keys of the recipe."""
    kept = {name: str(posted[name]) for name in _OF_THE_FORM if name in posted}
    wanted, _ = split_gpu({"gpu": ANY if kept.get("ask") == Question.GPU else kept.get("gpu", "")})
    fields = recipe.under({**beside, **wanted})
    error = None
    try:
        values = values_of(AnalysisRequest.parse(fields).to_dict())
    except InvalidInput as wrong:
        values, error = typed_values(fields), recipe.located(wrong)
    values = default_values() | values | kept
    asked = values["ask"]
    if asked in list(Question) and (batch := BATCH_OF.get(Question(asked))):
        values[batch] = values["current_batch_size"]
    return values, error


def _with(posted: QueryDict, changes: Mapping[str, str]) -> QueryDict:
    changed = posted.copy()
    for name, value in changes.items():
        changed[name] = value
    return changed


def _with_messages(form: AnalysisForm, error: InvalidInput) -> AnalysisForm:
    form.is_valid()
    for key, message in error.fields.items():
        told = with_labels(message)
        form.add_error(
            RECIPE, f"{told[:1].upper()}{told[1:]}." if key == RECIPE else f"{key}: {told}."
        )
    return form
