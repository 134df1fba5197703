"""Model presets. Each has its Hugging Face config with it, so nothing is downloaded."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import MAX_TEXT_LENGTH, plain_text, shown
from . import timm_models
from .config import describe
from .model import Model, hub_model
from .tasks import SIZES, SizeLimits, Task

_HERE = Path(__file__).parent
_CONFIGS = _HERE / "configs"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_UNSAFE = re.compile(r"\.\.|--")


@dataclass(frozen=True, kw_only=True)
class Preset(Model):
    """A model with its config, as ``presets.toml`` lists it.

    Attributes:
        parameters: The known number of parameters, to check the config with.
        source: Source of that number.
        config_source: Source of the config, and what of it was inferred.
    """

    parameters: int
    source: str
    config_source: str

    def config(self) -> dict[str, Any]:
        return _read_config(self.name)


def _read_config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_CONFIGS / f"{name}.json").read_text())
    return loaded


def _preset(name: str, written: dict[str, Any]) -> Preset:
    """A preset from its entry in ``presets.toml``, with limits and tasks from its config."""
    task = written.pop("task", None)
    model = describe(_read_config(name), name, None if task is None else Task(task))
    known = {field: getattr(model, field) for field in Model.__dataclass_fields__}
    sizes = {
        field: _with_default(model.limits_for_any(field), written.pop(field, None))
        for field in SIZES
        if field in known
    }
    return Preset(**known | sizes | written)


def _with_default(limits: SizeLimits | None, default: int | None) -> SizeLimits | None:
    return limits if limits is None or default is None else replace(limits, default=default)


PRESETS: dict[str, Preset] = {
    name: _preset(name, written)
    for name, written in tomllib.loads((_HERE / "presets.toml").read_text()).items()
}


def find_model(name: str, config: Mapping[str, Any] | None = None) -> Model:
    """The model of a workload.

    Args:
        name: Name of a preset, or a hub id; with a config, any name that is not a preset's.
        config: Checked fields.

    Raises:
        InvalidInput: If there is no such model.
    """
    if config is not None:
        return _given(name, config)
    for preset in PRESETS.values():
        if name in (preset.name, preset.hub_id):
            return preset
    if isinstance(name, str) and name.startswith(timm_models.PREFIX):
        return _of_timm(name)
    # The hub's own rules for ids, as far as they keep paths and URLs safe.
    if isinstance(name, str) and _HUB_ID.fullmatch(name) and not _UNSAFE.search(name):
        return hub_model(name)
    similar = get_close_matches(str(name)[:MAX_TEXT_LENGTH], PRESETS, n=5)
    such_as = f", such as {', '.join(similar)}" if similar else ""
    raise InvalidInput({"model": f"unknown model {shown(name)}; {choose_a_model(such_as)}"})


def choose_a_model(such_as: str = "") -> str:
    """Advice for when no model is named; there are too many to list."""
    return (
        f"choose one of the {len(PRESETS)} that `memorymark models` lists{such_as}, or enter a "
        "Hugging Face ID (org/name) or a config"
    )


def named(part: str) -> list[Model]:
    """The presets, and the models of timm, with a part in their names."""
    part = part.lower()
    presets = [one for one in PRESETS.values() if part in f"{one.name} {one.hub_id}".lower()]
    return [*presets, *(_of_timm(name) for name in timm_models.names() if part in name)]


def _of_timm(name: str) -> Model:
    try:
        config = timm_models.config_of(name)
        return replace(describe(config, name), display_name=config["architecture"])
    except InvalidInput as error:
        raise InvalidInput({"model": error.fields["config"]}) from error


def _given(name: str, config: Mapping[str, Any]) -> Model:
    wrong: dict[str, str] = {}
    plain_text("model", name, wrong)
    if not wrong and name in PRESETS:
        wrong["config"] = f"{name} is a preset with its own config; leave out one of the two"
    if wrong:
        raise InvalidInput(wrong)
    return describe(config, name)
