"""Widgets that are written without Django's templates look exactly as with them."""

from __future__ import annotations

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates, get_default_renderer
from django.utils.safestring import mark_safe

from analyses.pages.new.form import AnalysisForm
from memorymark_site.form_renderer import Renderer

HOSTILE = "\"><script>alert('&')</script>"
CHOICES = [
    ("", "None"),
    (HOSTILE, HOSTILE),
    ("safe", mark_safe("<b>bold</b>")),
    (1000, 1234567.5),
    ("Group & one", [("a", "A"), (2, "B")]),
]
ATTRIBUTES = {"id": "id_x", "hidden": True, "disabled": False, "title": HOSTILE, "max": 5}
WIDGETS = [
    forms.TextInput,
    forms.NumberInput,
    forms.HiddenInput,
    forms.CheckboxInput,
    forms.Select,
    forms.SelectMultiple,
    forms.RadioSelect,
    forms.CheckboxSelectMultiple,
]


def _in_one_line(html: str) -> str:
    """The HTML without line breaks, of which Django's templates leave more."""
    return html.replace("\n", "")


def test_the_sites_forms_use_it() -> None:
    assert isinstance(get_default_renderer(), Renderer)


@pytest.mark.parametrize("widget", WIDGETS)
@pytest.mark.parametrize("value", [None, "", HOSTILE, mark_safe("a&amp;b"), 1000, True, ["a", 2]])
@pytest.mark.parametrize("attributes", [{}, ATTRIBUTES])
def test_a_widget_is_written_as_djangos_template_writes_it(
    widget: type[forms.Widget], value: object, attributes: dict[str, object]
) -> None:
    one = widget(attributes)
    if isinstance(one, forms.widgets.ChoiceWidget):
        one.choices = CHOICES
    ours, theirs = (
        one.render("x<y", value, renderer=renderer) for renderer in (Renderer(), DjangoTemplates())
    )
    assert _in_one_line(ours) == _in_one_line(theirs)


def test_the_form_of_an_analysis_is_written_as_djangos_templates_write_it(db: None) -> None:
    ours, theirs = AnalysisForm(), AnalysisForm()
    ours.renderer, theirs.renderer = Renderer(), DjangoTemplates()
    for name in ours.fields:
        assert _in_one_line(str(ours[name])) == _in_one_line(str(theirs[name]))
        for one, other in zip(ours[name], theirs[name], strict=True):
            assert one.tag() == other.tag()
            labelled = [_in_one_line(each.tag(wrap_label=True)) for each in (one, other)]
            assert labelled[0] == labelled[1]
