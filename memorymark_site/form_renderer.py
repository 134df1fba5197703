"""Django's inputs and selects, written without its templates.

The form for a new analysis has some 350 of them, and Django fills in one to three templates for
each: two thirds of the time that the page took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.utils.formats import localize
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString

Widget = Mapping[str, Any]
"""Facts of a widget for its template, by the names that Django gives them."""

_FOLDER = "django/forms/widgets"


class Renderer(DjangoTemplates):
    """Writes the frequent widgets itself, in the words of Django's templates."""

    def render(
        self,
        template_name: str,
        context: dict[str, Any],
        request: HttpRequest | None = None,
    ) -> str:
        """The HTML of a widget, form or field, which the widget itself marks as safe."""
        write = _WRITERS.get(template_name)
        if write is None:
            return super().render(template_name, context, request)
        return write(context["widget"])


def _input(widget: Widget) -> str:
    value = widget["value"]
    given = "" if value is None else f' value="{_escaped(value)}"'
    kind, name = _escaped(widget["type"]), _escaped(widget["name"])
    return f'<input type="{kind}" name="{name}"{given}{_attributes(widget)}>'


def _input_option(widget: Widget) -> str:
    if not widget.get("wrap_label"):
        return _input(widget)
    number = widget["attrs"].get("id")
    target = f' for="{_escaped(number)}"' if number else ""
    return f"<label{target}>{_input(widget)} {_shown(widget['label'])}</label>"


def _select(widget: Widget) -> str:
    groups = []
    for name, options, _index in widget["optgroups"]:
        lines = "".join(f"\n  {_option(option)}" for option in options)
        if name:
            lines = f'\n  <optgroup label="{_shown(name)}">{lines}\n  </optgroup>'
        groups.append(lines)
    opening = f'<select name="{_escaped(widget["name"])}"{_attributes(widget)}>'
    return f"{opening}{''.join(groups)}\n</select>"


def _option(widget: Widget) -> str:
    opening = f'<option value="{_escaped(widget["value"])}"{_attributes(widget)}>'
    return f"{opening}{_shown(widget['label'])}</option>"


def _attributes(widget: Widget) -> str:
    return "".join(
        f" {_escaped(name)}" if value is True else f' {_escaped(name)}="{_escaped(value)}"'
        for name, value in widget["attrs"].items()
        if value is not False
    )


def _escaped(value: object) -> str:
    return conditional_escape(value if isinstance(value, SafeString) else str(value))


def _shown(text: object) -> str:
    return _escaped(localize(text))


_WRITERS: dict[str, Callable[[Widget], str]] = {
    **dict.fromkeys(
        (f"{_FOLDER}/{kind}.html" for kind in ("input", "text", "number", "hidden", "checkbox")),
        _input,
    ),
    f"{_FOLDER}/radio_option.html": _input_option,
    f"{_FOLDER}/checkbox_option.html": _input_option,
    f"{_FOLDER}/select.html": _select,
}
