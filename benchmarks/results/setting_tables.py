"""Tables of the settings of a workload, and of those that do not combine."""

from __future__ import annotations

from benchmarks.results.cells import Read, table
from engine.core.fields import Field, Group, described_fields
from engine.features import CONTRADICTIONS, Values
from engine.interface.texts import GENERATED, Texts
from engine.interface.workload import Workload

_FIELDS = described_fields(Workload)
_REFUSED = _FIELDS | described_fields(Texts)


def settings(_read: Read) -> str:
    """A table for each section of the form that says how a model is trained."""
    sections: dict[Group, list[Field]] = {}
    for field in _FIELDS.values():
        if field.group is not Group.MODEL:
            sections.setdefault(field.group, []).append(field)
    return "\n\n".join(
        f"### {group.label}\n\n{_section(sections[group])}" for group in Group if group in sections
    )


def _section(fields: list[Field]) -> str:
    return table(
        ["setting", "flag", "meaning"],
        [[one.label_with_unit, f"`{one.flag}`", one.usage.replace("|", r"\|")] for one in fields],
    )


def combinations(_read: Read) -> str:
    """A row for each combination that is refused."""
    rows = []
    for one in (*CONTRADICTIONS, *GENERATED):
        first, *others = (f"{_label(name)}: {_spoken(one.settings[name])}" for name in one.settings)
        message = one.message.replace("{workload.preset.package}", "timm or diffusers")
        message = message.replace("{workload.preset.display_name}", "the model")
        rows.append([first, "; ".join(others) or "some models", message])
    return table(["this", "with", "what to do"], rows)


def _label(name: str) -> str:
    return _REFUSED[name].label


def _spoken(values: Values) -> str:
    named = [_word(value) for value in values.named if value != ""]
    if not values.are_excluded:
        return " or ".join(named)
    return "any" if named == ["none"] else f"other than {' or '.join(named)}"


def _word(value: object) -> str:
    if value is None:
        return "none"
    return ("off", "on")[value] if isinstance(value, bool) else str(value)
