"""Texts with images or sound in them, which stand there as tokens of their own."""

from __future__ import annotations

from collections.abc import Set
from inspect import signature
from typing import Any

import torch

from ...interface.workload import Workload
from ...tracing.fake_models import on_fake_tensors
from ...tracing.known_values import KnownValues
from ..building import new_model
from ..values_in_models import known_in_models
from .batch import Batch


def interleaved(texts: torch.Tensor, value: int, count: int, length: int) -> torch.Tensor:
    """Texts with a run of one value behind each of the first tokens."""
    run = torch.full((len(texts), length), value)
    parts = [part for token in texts.split(1, dim=1)[:count] for part in (token, run)]
    return torch.cat([*parts, texts[:, count:]], dim=1)


def taken(arguments: Set[str], given: Batch) -> Batch:
    """The given inputs that there are arguments for."""
    return {name: given[name] for name in given.keys() & arguments}


def token_of(config: Any, names: tuple[str, ...]) -> int | None:
    """The first of these tokens that a config has."""
    return next(
        (found for name in names if (found := getattr(config, name, None)) is not None), None
    )


def feature_count(workload: Workload, method: str, given: Batch) -> int:
    """Number of tokens that a model makes of a sample's images or sound.

    Args:
        workload: The model.
        method: Name of the method that makes them; without it, text reads them by cross-attention,
            and there are none.
        given: Inputs of the model's forward pass that hold them.
    """
    with torch.device("meta"):
        model: Any = new_model(workload)
    part = next((p for p in (model.base_model, model) if hasattr(p, method)), None)
    if part is None:
        return 0
    make = getattr(part, method)
    arguments = signature(make).parameters
    free = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    inputs = given if free and "args" in arguments else taken(arguments.keys(), given)
    mode = KnownValues()
    with known_in_models(lambda tensor: mode.values(tensor) is not None), mode, torch.no_grad():
        on_fake_tensors(model)
        found = make(**{name: mode.given(value) for name, value in inputs.items()})
    outputs = (getattr(found, name, None) for name in ("pooler_output", "last_hidden_state"))
    features = next((output for output in outputs if output is not None), found)
    parts = features if isinstance(features, list | tuple) else [features]
    return sum(part.shape.numel() // part.shape[-1] for part in parts)
