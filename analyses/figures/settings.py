"""The settings of an analysis as a list of labels and values, and as a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyses.formatting import exact, gpu_name, model_name
from analyses.lab.settings import DEFAULT
from analyses.models import Analysis
from engine.core.choices import Goal
from engine.core.fields import Field, Group
from engine.core.numbers import usd, whole
from engine.core.sizes import gib
from engine.gpus import GPUS
from engine.interface.defaults import format_values
from engine.interface.goals import TEXTS, command_line, counts, goal_of
from engine.interface.program import stored_program
from engine.interface.request import FIELDS, usual_values
from engine.interface.subject import program_hash_in
from engine.models.presets import PRESETS
from engine.models.tasks import SIZES

Request = Mapping[str, Any]
"""The stored fields of a request; older versions lack some."""

_HASH_DIGITS = 16
"""Shown digits of a script's hash; the lines to paste have all."""

_ORIGINS = {"lab": "lab default", "catalogue": "catalogue price", DEFAULT: "assumed"}


def settings_of(
    request: Request, assumed_by: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Labels and values in the order of the form; rare settings only where they were changed.

    ``assumed_by`` is that of the analysis; without it no origins of assumptions are shown.
    """
    rows = _subject_rows(request)
    shown, goal = _worth_showing(request), goal_of(request)
    for name, described in FIELDS.items():
        label = described.label
        if described.group is Group.COST:
            if not counts(name, goal):
                continue
            value = _assumed(described, request.get(name), (assumed_by or {}).get(name, ""))
            if described.name.endswith("_usd") and request.get(name) is None:
                value = "none known" if _has_no_price(request) else value
            rows.append((f"{label} (assumed)", value))
        elif described.group is not Group.MODEL and name in shown:
            origin = (assumed_by or {}).get(name)
            value = _value(described, shown[name])
            rows.append((label, f"{value}, {_ORIGINS[origin]}" if origin else value))
    return [(label, value) for label, value in rows if value]


def _subject_rows(request: Request) -> list[tuple[str, str]]:
    """The subject of training: a model, or somebody's script."""
    if program := program_hash_in(request):
        return [("Model", str(request["model"])), ("Script", program[:_HASH_DIGITS])]
    preset = PRESETS.get(request["model"])
    return [
        ("Model", model_name(request["model"])),
        ("Hub ID", preset.hub_id if preset else ""),
        ("Architecture", _architecture(request)),
    ]


def defaults_taken(request: Request, assumed_by: Mapping[str, str]) -> str:
    """The decisive settings that nobody has given, such as ``fp32, adamw, 128 tokens``."""
    return format_values(request, [name for name, by in assumed_by.items() if by == DEFAULT])


def _has_no_price(request: Request) -> bool:
    gpu = GPUS.get(request["gpu"])
    return gpu is not None and gpu.price_per_hour_usd is None


def setting(analysis: Analysis, name: str) -> str:
    """One setting with its unit; empty if the analysis has none."""
    value = analysis.request.get(name)
    return "" if value is None else _value(FIELDS[name], value)


def _worth_showing(request: Request) -> dict[str, Any]:
    """The values of the request, without rare fields at their usual values."""
    usual, goal = usual_values(request), goal_of(request)
    return {
        name: request[name]
        for name, described in FIELDS.items()
        if counts(name, goal)
        and (request.get(name) is not None or (described.takes_none and name in request))
        and not (_is_rare(described, goal) and request[name] == usual.get(name))
    }


def _is_rare(described: Field, goal: Goal) -> bool:
    """Whether a field is not worth showing at its usual value."""
    return described.group.is_rare and (goal is not Goal.GENERATION or described.name not in TEXTS)


def _value(described: Field, value: object) -> str:
    if described.name == "gpu":
        return gpu_name(str(value))
    if value is None:
        return described.described.empty
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, int):
        return str(value)
    if described.name.endswith("_bytes"):
        return gib(value)
    return f"{whole(value)} {described.unit_of(value)}".strip()


def _assumed(described: Field, value: float | None, origin: str) -> str:
    is_price = described.name.endswith("_usd")
    if value is None:  # a request of an earlier version
        return _ORIGINS["catalogue"] if is_price else ""
    text = usd(value) if is_price else f"{exact(value)} {described.described.unit}".strip()
    return f"{text}, {_ORIGINS[origin]}" if origin else text


def input_size(request: Request) -> str:
    """The size of a sample, such as ``128 tokens``; empty if it is not known yet."""
    known = [_value(FIELDS[size], request[size]) for size in SIZES if request.get(size)]
    return ", ".join(known)


def asked_fields(analysis: Analysis) -> Request:
    """The stored fields for commands; of a script without costs that the lab has assumed."""
    request: Request = analysis.request
    if not analysis.program_hash:
        return request
    return {name: request[name] for name in request if name not in analysis.assumed_by}


def command_of(request: Request) -> str:
    """The command line of the same analysis; its config is a separate file.

    Empty for a script that no command names, or that another version stored.
    """
    if program_hash_in(request):
        program = stored_program(request)
        return program.analyze_command if program else ""
    return command_line(goal_of(request), str(request["model"]), _worth_showing(request))


def _architecture(request: Request) -> str:
    config = request.get("config") or {}
    return f"{config['model_type']}, by its config.json" if "model_type" in config else ""
