"""Recipes: the files that training frameworks such as axolotl train from.

Each framework has a table of the keys of one release, and a function that sets the fields of a
request from them. No torch in here, nor any of the frameworks.
"""

from __future__ import annotations

from .errors import InvalidRecipe, UnknownFramework
from .frameworks import FRAMEWORKS, any_framework, is_recipe
from .recipe import Recipe, parse_recipe, read_recipe

__all__ = [
    "FRAMEWORKS",
    "InvalidRecipe",
    "Recipe",
    "UnknownFramework",
    "any_framework",
    "is_recipe",
    "parse_recipe",
    "read_recipe",
]
