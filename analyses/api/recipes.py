"""Recipes of training frameworks in the body of a request: ``recipe`` is the text of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework.exceptions import ValidationError

from analyses.api.serializers import FRAMEWORK, RECIPE
from analyses.api.views import refusal
from analyses.results.recipes import stored
from engine.core.errors import InvalidInput
from engine.interface.request import FIELDS
from engine.recipes import InvalidRecipe, Recipe, parse_recipe


@dataclass(frozen=True)
class Submission:
    """The body of a request.

    Attributes:
        fields: The fields of a request, with those of the recipe.
        recipe: The recipe; ``None`` if there is none.
    """

    fields: Mapping[str, Any]
    recipe: Recipe | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Submission:
        """Read a body.

        Raises:
            ValidationError: If its recipe is refused, by the recipe's keys.
        """
        if RECIPE not in body:
            return cls(body, None)
        given = {name: value for name, value in body.items() if name not in (RECIPE, FRAMEWORK)}
        text, framework = body[RECIPE], body.get(FRAMEWORK)
        if not isinstance(text, str) or not isinstance(framework, str | None):
            raise refusal(InvalidInput({RECIPE: "enter the text of a recipe"}))
        try:
            recipe = parse_recipe(text, given, framework)
        except InvalidRecipe as error:
            raise refusal(InvalidInput({_named(n): m for n, m in error.fields.items()})) from error
        except InvalidInput as error:
            raise refusal(error) from error
        unknown = {name: value for name, value in given.items() if name not in FIELDS}
        return cls({**recipe.under(given), **unknown}, recipe)

    def refusal(self, error: InvalidInput) -> ValidationError:
        """The response to wrong fields, by keys of the recipe where these set them."""
        if self.recipe is None:
            return refusal(error)
        found: dict[str, str] = {}
        for field, message in error.fields.items():
            at = self.recipe.at(field, message)
            found |= {field: message} if at is None else {_named(at[0]): at[1]}
        return refusal(InvalidInput(found))

    @property
    def stored(self) -> dict[str, Any] | None:
        """The part of the recipe that an analysis keeps."""
        return None if self.recipe is None else stored(self.recipe)

    def told(self, body: dict[str, Any]) -> dict[str, Any]:
        """A response that says what was read of the recipe."""
        return body if self.recipe is None else {**body, RECIPE: self.stored}


def _named(key: str) -> str:
    return key if key == RECIPE else f"{RECIPE}.{key}"
