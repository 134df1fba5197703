"""Recipes of training frameworks on the command line, in the place of a model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..gpus import LOCAL
from ..interface.request import AnalysisRequest
from ..recipes import FRAMEWORKS, Recipe, is_recipe, read_recipe
from ..recipes.document import read_file
from ..recipes.launch import LAUNCH, described_launch, launch_environment

SUFFIXES = (".yaml", ".yml")
FLAGS = {"framework": "--framework", LAUNCH: "--accelerate-config"}
"""Flags that are not fields of a request, for messages."""

_JSON = ".json"


def add_recipe_flags(parser: Any) -> None:
    """Add what stands beside a recipe."""
    listed = ", ".join(FRAMEWORKS)
    about = f"the framework of a recipe, where its keys do not tell: {listed}"
    parser.add_argument(FLAGS["framework"], metavar="NAME", help=about)
    about = "accelerate's config that the recipe or script is launched with"
    parser.add_argument(FLAGS[LAUNCH], metavar="FILE", help=about)


def names_recipe(options: argparse.Namespace) -> bool:
    """Whether a command was given a recipe as its model."""
    name = getattr(options, "model", None)
    if not hasattr(options, "framework") or not isinstance(name, str):
        return False
    if name.endswith(SUFFIXES):
        return True
    if not name.endswith(_JSON):
        return False
    if options.framework is not None:
        return True
    try:
        return is_recipe(read_file(Path(name)).values)
    except InvalidInput:  # said where it is read as a model's config
        return False


def recipe_of(options: argparse.Namespace, given: Mapping[str, object]) -> Recipe | None:
    """The recipe that a command was given; ``None`` for a model.

    Args:
        options: The command's.
        given: Its fields, which win over the recipe's.
    """
    if not names_recipe(options):
        return None
    beside = {name: value for name, value in given.items() if name != "model"}
    beside[LAUNCH] = getattr(options, LAUNCH)
    return read_recipe(Path(options.model), beside, options.framework)


def launch_script(options: argparse.Namespace) -> list[str]:
    """Let this process have the variables that accelerate's launcher would set for the script.

    Returns:
        Caveats that say so; none without a config.

    Raises:
        InvalidInput: For flags that say nothing about a script, or what is not predicted.
    """
    if options.framework is not None:
        wanted = "it is the framework of a recipe, and this is a script; leave it out"
        raise InvalidInput({"framework": wanted})
    name = getattr(options, LAUNCH)
    if name is None:
        return []
    if getattr(options, "gpu", LOCAL) == LOCAL:
        wanted = "a script is measured as one process; leave this out, or choose a catalogue GPU"
        raise InvalidInput({LAUNCH: wanted})
    variables = launch_environment(Path(name))
    os.environ.update(variables)
    return [described_launch(variables, Path(name).name)]


def refuse_beside_a_model(options: argparse.Namespace) -> None:
    """Refuse flags that only a recipe or a script has a use for.

    Raises:
        InvalidInput: For those that a command was given with a model.
    """
    if names_recipe(options):
        return
    beside = {
        "framework": "it is the framework of a RECIPE.yaml; leave it out",
        LAUNCH: "it belongs to a RECIPE.yaml or SCRIPT.py; describe a model by --world-size, "
        "--parallelism and --precision",
    }
    wrong = {name: said for name, said in beside.items() if getattr(options, name, None)}
    if wrong:
        raise InvalidInput(wrong)


def request_from(recipe: Recipe | None, given: Mapping[str, object]) -> AnalysisRequest:
    """The request for these fields, with errors by the recipe's keys where it set them."""
    try:
        return AnalysisRequest.parse(given)
    except InvalidInput as error:
        if recipe is None:
            raise
        raise recipe.located(error) from error


def told(recipe: Recipe | None) -> dict[str, object]:
    """Fields about a recipe in an answer in JSON."""
    return {} if recipe is None else {"recipe": recipe.to_dict()}
