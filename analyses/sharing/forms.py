"""The form of a share link."""

from __future__ import annotations

from django import forms

from analyses.sharing.links import LIFETIMES_DAYS


class ShareForm(forms.Form):
    """How long the link works."""

    days = forms.TypedChoiceField(
        label="Works for",
        coerce=int,
        choices=[(days, f"{days} day{'' if days == 1 else 's'}") for days in LIFETIMES_DAYS],
        initial=7,
    )
