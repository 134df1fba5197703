"""Settings that do not combine, for the form's script, which then does not offer them."""

from __future__ import annotations

from engine.core.fields import Field
from engine.features import CONTRADICTIONS, Contradiction, Values
from engine.interface.request import FIELDS


def combinations() -> list[dict[str, object]]:
    """The combinations known from the fields alone, with values as in the inputs of the form.

    What concerns a field's default is left out: a default can always be chosen.
    """
    return [_as_json(one) for one in CONTRADICTIONS if one.model_is is None and _is_offered(one)]


def _is_offered(one: Contradiction) -> bool:
    return FIELDS[one.field].default not in one.settings[one.field]


def _as_json(one: Contradiction) -> dict[str, object]:
    first, *others = ({"name": name, **_typed(name, one)} for name in one.settings)
    message = f"{one.message[:1].upper()}{one.message[1:]}."
    return {"this": first, "others": others, "message": message}


def _typed(name: str, one: Contradiction) -> dict[str, object]:
    values, field = one.settings[name], FIELDS[name]
    return {"values": _texts(values, field), "excluded": values.are_excluded}


def _texts(values: Values, field: Field) -> list[str]:
    """The values as text; an empty input stands for the default."""
    texts = [_text(value, field) for value in values.named]
    return [*texts, ""] if field.default in values.named and "" not in texts else texts


def _text(value: object, field: Field) -> str:
    if field.is_switch and not field.choices:
        return "on" if value else ""
    return "" if value is None else str(value).lower() if field.is_switch else str(value)
