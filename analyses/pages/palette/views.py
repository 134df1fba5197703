"""The search page, which is the palette without JavaScript, and the palette's list."""

from __future__ import annotations

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from analyses.pages.access import MemberRequest
from analyses.pages.history.filters import MAX_SEARCH_LENGTH
from analyses.pages.palette.entries import entries_for


class PaletteForm(forms.Form):
    """The text to search for; empty for the places to begin."""

    q = forms.CharField(
        label="Search",
        required=False,
        max_length=MAX_SEARCH_LENGTH,
        widget=forms.TextInput(
            attrs={
                "type": "search",
                "autocomplete": "off",
                "spellcheck": "false",
                "placeholder": "145, bert, savings, maria",
                "data-key": "/",
                "data-key-label": "Search",
            }
        ),
    )


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def search(request: MemberRequest) -> HttpResponse:
    """The page; for htmx the list of the palette."""
    form = PaletteForm(request.GET)
    text = form.cleaned_data["q"] if form.is_valid() else ""
    entries = entries_for(request.user, text) if form.is_valid() else []
    context = {"form": form, "text": text, "entries": entries, "nav": "search"}
    is_palette = request.htmx.target == "palette-found"
    return render(request, f"palette/{'_found' if is_palette else 'search'}.html", context)
