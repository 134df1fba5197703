"""Model presets: each carries its Hugging Face config, so that nothing is downloaded."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput
from engine.models.config import describe
from engine.models.kinds import Model, SizeLimits, hub_model
from engine.parsing import plain_text, shown

_HERE = Path(__file__).parent
_CONFIGS = _HERE / "configs"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_UNSAFE = re.compile(r"\.\.|--")


@dataclass(frozen=True, kw_only=True)
class Preset(Model):
    """A model that comes with its config.

    Attributes:
        parameters: How many it is known to have; the check of its config.
        source: Where that number was read, or that it was not looked up.
    """

    parameters: int
    source: str

    def config(self) -> dict[str, Any]:
        """The fields of the model's ``config.json``, written down by hand for its hub id."""
        return _read_config(self.name)


def _read_config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_CONFIGS / f"{name}.json").read_text())
    return loaded


def _preset(name: str, written: dict[str, Any]) -> Preset:
    """A preset as ``presets.toml`` has it, its limits and tasks read from its config."""
    model = describe(_read_config(name), name)
    known = {field: getattr(model, field) for field in Model.__dataclass_fields__}
    sizes = {
        field: _with_default(getattr(model, field), written.pop(field, None))
        for field in ("sequence_length", "image_size")
    }
    return Preset(**known | sizes | written)


def _with_default(limits: SizeLimits | None, default: int | None) -> SizeLimits | None:
    return limits if limits is None or default is None else replace(limits, default=default)


PRESETS: dict[str, Preset] = {
    name: _preset(name, written)
    for name, written in tomllib.loads((_HERE / "presets.toml").read_text()).items()
}


def find_model(name: str, config: Mapping[str, Any] | None = None) -> Model:
    """The model a workload names.

    Args:
        name: Of a preset (its hub id also says it) or of a model of the hub; with a config, any
            name but a preset's.
        config: The checked fields of its own config.

    Raises:
        InvalidInput: If there is no such model.
    """
    if config is not None:
        return _given(name, config)
    for preset in PRESETS.values():
        if name in (preset.name, preset.hub_id):
            return preset
    # The hub's own rules for an id, as far as they keep it out of mischief in a path or an address.
    if isinstance(name, str) and _HUB_ID.fullmatch(name) and not _UNSAFE.search(name):
        return hub_model(name)
    raise InvalidInput(
        {
            "model": f"unknown model {shown(name)}; choose one of {', '.join(PRESETS)}, or give "
            "the id of a model of the Hugging Face hub (org/name), or a config"
        }
    )


def _given(name: str, config: Mapping[str, Any]) -> Model:
    wrong: dict[str, str] = {}
    plain_text("model", name, wrong)
    if not wrong and name in PRESETS:
        wrong["config"] = f"{name} has its own; leave one of the two out"
    if wrong:
        raise InvalidInput(wrong)
    return describe(config, name)
