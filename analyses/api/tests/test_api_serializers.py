"""Serializers made from data classes: same fields, described by the class's docstring."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from analyses.api.serializers import serializer_of
from analyses.tests.factories import make_result
from engine.interface.result import AnalysisResult


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Wheel:
    size: float


@dataclass(frozen=True)
class Vehicle:
    """A thing that rolls.

    Attributes:
        name: What people call it,
            however long.
        low, high: The interval of ``speed``.

    Raises:
        Nothing: ever.
    """

    name: str
    low: int
    high: int | None
    colour: Colour
    wheels: list[Wheel]
    spare: Wheel | None
    loads: dict[str, int]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Lorry(Vehicle):
    """A large one.

    Attributes:
        low: Of a lorry.
    """


CART = Vehicle("cart", 1, None, Colour.RED, [Wheel(2.5)], None, {"hay": 3}, ("old",))


def test_a_serializer_writes_the_data_classs_fields() -> None:
    assert serializer_of(Vehicle)(CART).data == asdict(CART) | {"tags": ["old"]}


def test_descriptions_come_from_the_docstring() -> None:
    fields = serializer_of(Vehicle)().fields
    said = {name: field.help_text for name, field in fields.items() if field.help_text}
    assert said == {
        "name": "What people call it, however long.",
        "low": "The interval of speed.",
        "high": "The interval of speed.",
    }
    assert serializer_of(Vehicle).__doc__ == "A thing that rolls."


def test_descriptions_are_inherited_and_can_be_overridden() -> None:
    fields = serializer_of(Lorry)().fields
    assert fields["low"].help_text == "Of a lorry."
    assert fields["name"].help_text == "What people call it, however long."


def test_an_optional_part_is_not_required_and_has_its_own_name() -> None:
    whole, stored = serializer_of(Vehicle), serializer_of(Vehicle, required=False)
    assert all(field.required for field in whole().fields.values())
    assert not any(field.required for field in stored().fields.values())
    assert (whole.__name__, stored.__name__) == ("VehicleSerializer", "StoredVehicleSerializer")
    assert whole().fields["high"].allow_null
    assert not whole().fields["low"].allow_null


def test_each_schema_is_named_once() -> None:
    assert serializer_of(Vehicle) is serializer_of(Vehicle, required=True)


def test_a_complete_result_is_written_unchanged() -> None:
    result = make_result()
    assert serializer_of(AnalysisResult)(result).data == result.to_dict()
