"""The frameworks whose recipes are read, and which of them a file belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from .axolotl import AXOLOTL
from .document import Document
from .errors import FIELD, InvalidRecipe, UnknownFramework
from .framework import Framework
from .llama_factory import LLAMA_FACTORY
from .ms_swift import MS_SWIFT
from .torchtune import TORCHTUNE
from .trl import TRL

FRAMEWORKS: Mapping[str, Framework] = {
    one.name: one for one in (AXOLOTL, LLAMA_FACTORY, TORCHTUNE, TRL, MS_SWIFT)
}
"""Frameworks by their names for ``--framework``."""


def any_framework() -> str:
    """The titles of all of them, as a sentence lists them: ``axolotl, TRL or ms-swift``."""
    *first, last = (one.title for one in FRAMEWORKS.values())
    return f"{', '.join(first)} or {last}"


_VERL = (
    "this is a recipe of verl, whose rollouts share the GPU with the actor: its inference engine "
    "takes rollout.gpu_memory_utilization of the GPU, by default half "
    "(verl/trainer/config/rollout/rollout.yaml), and how much of that it gives back before the "
    "update is not known here. A prediction of the actor alone would be off by up to that share; "
    "describe it by --method grpo --rollout vllm --vllm-share 50"
)


_OTHERS = {
    "distributed_type": "this is accelerate's config; pass the recipe, and this by "
    "--accelerate-config",
    "zero_optimization": "this is DeepSpeed's config; pass the recipe that refers to it",
    **dict.fromkeys(
        ("tensor_model_parallel_size", "recompute_granularity", "train_iters"),
        "this is a recipe for Megatron, whose layers and optimizer are not predicted; describe the "
        "model by its name or --config, and how GPUs share it by --tensor-parallel, --parallelism "
        "and the other flags",
    ),
}
"""Files that are no recipes of these frameworks, by a key that each of them has."""


def framework_of(document: Document, name: str | None = None) -> Framework:
    """The framework that a recipe is for.

    Args:
        document: The recipe.
        name: As it is given; ``None`` to tell by the keys.

    Raises:
        UnknownFramework: If no framework or several have such keys.
        InvalidRecipe: If it is of a framework, or a file beside a recipe, that is not read.
    """
    values = document.values
    if "actor_rollout_ref" in values:
        raise InvalidRecipe({FIELD: document.at("actor_rollout_ref", _VERL)})
    for mark, message in _OTHERS.items():
        if mark in values and name is None:
            raise InvalidRecipe({FIELD: message})
    if name is not None:
        if name not in FRAMEWORKS:
            raise InvalidInput(
                {"framework": f"{shown(name)} is not read; choose {', '.join(FRAMEWORKS)}"}
            )
        return FRAMEWORKS[name]
    found = [one for one in FRAMEWORKS.values() if _has_marks(values, one)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(one.title for one in found)
        raise UnknownFramework({FIELD: f"its keys are those of {names}; say which by --framework"})
    raise UnknownFramework({FIELD: f"it is of no framework that is read. {looked_for()}"})


def is_recipe(values: Mapping[str, Any]) -> bool:
    """Whether a JSON file is a recipe, rather than a model's ``config.json``."""
    if "architectures" in values or "_class_name" in values:
        return False
    return "actor_rollout_ref" in values or any(
        _has_marks(values, one) for one in FRAMEWORKS.values()
    )


def looked_for() -> str:
    """The keys by which each framework is told."""
    each = (
        f"{one.title}: {' and '.join(sorted(one.needed))}"
        + (f" with one of {', '.join(sorted(one.marks))}" if one.marks != one.needed else "")
        for one in FRAMEWORKS.values()
    )
    return f"Looked for {'; '.join(each)}. --framework says which it is"


def _has_marks(values: Mapping[str, Any], framework: Framework) -> bool:
    return framework.needed <= values.keys() and not framework.marks.isdisjoint(values.keys())
