"""Serializers made from data classes: they write the same fields, and say what the class says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from analyses.api.serializers import serializer_of
from analyses.tests.factories import make_result
from engine.result import AnalysisResult


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


def test_it_writes_what_the_data_class_holds() -> None:
    assert serializer_of(Vehicle)(CART).data == asdict(CART) | {"tags": ["old"]}


def test_it_says_what_the_docstring_says() -> None:
    fields = serializer_of(Vehicle)().fields
    said = {name: field.help_text for name, field in fields.items() if field.help_text}
    assert said == {
        "name": "What people call it, however long.",
        "low": "The interval of speed.",
        "high": "The interval of speed.",
    }
    assert serializer_of(Vehicle).__doc__ == "A thing that rolls."


def test_what_a_base_says_holds_until_the_class_says_more() -> None:
    fields = serializer_of(Lorry)().fields
    assert fields["low"].help_text == "Of a lorry."
    assert fields["name"].help_text == "What people call it, however long."


def test_what_may_be_missing_is_neither_required_nor_called_the_same() -> None:
    whole, stored = serializer_of(Vehicle), serializer_of(Vehicle, required=False)
    assert all(field.required for field in whole().fields.values())
    assert not any(field.required for field in stored().fields.values())
    assert (whole.__name__, stored.__name__) == ("VehicleSerializer", "StoredVehicleSerializer")
    assert whole().fields["high"].allow_null
    assert not whole().fields["low"].allow_null


def test_the_schema_has_a_name_once() -> None:
    assert serializer_of(Vehicle) is serializer_of(Vehicle, required=True)


def test_a_whole_result_is_written_as_it_is() -> None:
    result = make_result()
    assert serializer_of(AnalysisResult)(result).data == result.to_dict()
