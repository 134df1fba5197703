"""The registry of a request's fields, and the checks of values against it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from engine.core.border import read_json, settle
from engine.core.errors import InvalidInput
from engine.core.fields import Choice, Described, Group, Interval, described_fields
from engine.interface.request import FIELDS, AnalysisRequest, as_flags, usual_values


class Colour(Choice):
    RED = "red", "Red, as a rose"
    SKY_BLUE = "sky-blue"


@dataclass(frozen=True)
class Bike:
    gears: Annotated[int, Interval(ge=1, le=30), Described("Gears", "How many.", Group.OPTIONS)]
    colour: Annotated[Colour, Described("Colour", "Of the frame.", Group.OPTIONS)] = Colour.RED
    weight: Annotated[
        float | None, Interval(ge=0, le=50), Described("Weight", "In all.", Group.OPTIONS)
    ] = None
    electric: Annotated[bool, Described("Electric", "With a motor.", Group.OPTIONS)] = False
    owner: Annotated[str, Described("Owner", "Who rides it.", Group.OPTIONS)] = "nobody"
    lights: Annotated[
        bool | None, Described("Lights", "On or off.", Group.OPTIONS, empty="by the sun")
    ] = None
    parts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle(self, wrong)
        if wrong:
            raise InvalidInput(wrong)


def bike(**given: Any) -> Bike:
    return Bike(**({"gears": 3} | given))


def test_values_are_read_as_people_and_programs_write_them() -> None:
    read = bike(gears=" 7 ", colour="sky-blue", weight="9.5", electric="Yes", owner="ada")
    assert read == Bike(7, Colour.SKY_BLUE, 9.5, True, "ada")
    assert bike(weight=9).weight == 9.0
    assert bike(electric=" off ").electric is False
    assert (bike(lights="yes").lights, bike(lights=False).lights, bike().lights) == (
        True,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gears", 0, "enter a whole number from 1 to 30"),
        ("gears", 31, "enter a whole number from 1 to 30"),
        ("gears", True, "enter a whole number from 1 to 30"),
        ("gears", 2.0, "enter a whole number from 1 to 30"),
        ("gears", "1e1", "enter a whole number from 1 to 30"),
        ("gears", "9" * 5000, "enter a whole number from 1 to 30"),
        ("gears", None, "enter a whole number from 1 to 30"),
        ("weight", True, "enter a number from 0 to 50"),
        ("weight", "nan", "enter a number from 0 to 50"),
        ("weight", 10**400, "enter a number from 0 to 50"),
        ("colour", "green", "choose one of red, sky-blue"),
        ("colour", ["red"], "choose one of red, sky-blue"),
        ("electric", "maybe", "enter true or false"),
        ("electric", 2, "enter true or false"),
        ("lights", "dim", "enter true or false"),
        ("owner", "x" * 501, "enter at most 500 characters of text"),
        ("owner", "a\0b", "enter at most 500 characters of text"),
        ("owner", "\ud800", "enter at most 500 characters of text"),
        ("owner", 5, "enter at most 500 characters of text"),
    ],
)
def test_a_wrong_value_says_what_to_enter(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        bike(**{name: value})
    assert raised.value.fields == {name: message}


def test_json_is_read_strictly_and_missing_fields_take_defaults() -> None:
    assert read_json(Bike, {"gears": 3}) == bike()
    assert read_json(Bike, '{"gears": 3, "parts": {"bell": 1}}').parts == {"bell": 1}
    for wrong in ({}, {"gears": "3"}, {"gears": 3, "bell": 1}, {"gears": 3, "parts": {"b": 0.5}}):
        with pytest.raises(InvalidInput):
            read_json(Bike, wrong)


def test_every_field_of_a_request_has_a_description_and_its_own_flag() -> None:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"})
    assert set(FIELDS) == set(request.to_dict())
    assert all(one.label and one.described.help.endswith(".") for one in FIELDS.values())
    assert len({one.flag for one in FIELDS.values()}) == len(FIELDS)
    groups = [one.group for one in FIELDS.values()]
    assert groups == sorted(groups, key=list(Group).index)


def test_a_choice_has_a_label() -> None:
    assert described_fields(Bike)["colour"].choices == [
        ("red", "Red, as a rose"),
        ("sky-blue", "sky blue"),
    ]
    # A switch that may be left empty is a choice of three.
    assert described_fields(Bike)["lights"].choices == [("true", "on"), ("false", "off")]
    assert described_fields(Bike)["electric"].choices == []


def test_the_usage_of_a_flag_names_choices_and_default() -> None:
    fields = described_fields(Bike)
    assert fields["colour"].usage == "Of the frame. One of red, sky-blue. Default: red."
    assert fields["electric"].usage == "With a motor. Default: false."
    assert fields["weight"].usage == "In all."
    assert fields["lights"].usage == "On or off. Default: by the sun."
    assert fields["lights"].metavar == "true|false"
    assert (fields["electric"].metavar, fields["gears"].metavar) == ("true|false", "N")


def test_flags_give_the_values_back() -> None:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10", "hours_per_run": 2.5}).to_dict()
    words = as_flags(request)
    assert words[words.index("--hours-per-run") + 1] == "2.5"
    assert words[words.index("--frozen-backbone") + 1] == "false"
    assert "--lora-rank" not in words


def test_the_usual_values_depend_on_the_models_head() -> None:
    assert usual_values({"model": "bert"})["label_count"] == 2
    assert usual_values({"model": "bert", "task": "token-classification"})["label_count"] == 9
    assert usual_values({"model": "acme/own"})["task"] is None
    assert usual_values({"model": "of another version"})["precision"] == "fp32"


def test_pydantic_is_only_loaded_to_check_values() -> None:
    modules = "sys, engine.cli.main, engine.client, engine.recording"
    code = f"import {modules}; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("name", "label", "one", "two"),
    [
        ("num_beams", "Beams", "beam", "beams"),
        ("new_tokens", "New tokens", "token", "tokens"),
        ("image_count", "Images (images per sample)", "image per sample", "images per sample"),
        ("run_batches", "Batches per run", "batch", "batches"),
        ("launch_microseconds", "Launch time (µs)", "µs", "µs"),
        ("prompt_length", "Prompt length (tokens)", "token", "tokens"),
    ],
)
def test_a_unit_is_said_once_and_agrees_with_its_number(
    name: str, label: str, one: str, two: str
) -> None:
    described = FIELDS[name]
    assert (described.label_with_unit, described.unit_of(1), described.unit_of(2)) == (
        label, one, two,
    )  # fmt: skip
