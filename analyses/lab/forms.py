"""The forms of an admin: raw text, which the engine's rules for assumptions judge."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.contrib.auth.models import User
from django.utils.text import slugify

from analyses.form_fields import number, tick
from analyses.formatting import exact, plain_number
from analyses.lab import services
from analyses.lab.selectors import HeldPrice
from analyses.models import LabSettings
from engine.errors import InvalidInput
from engine.request import Assumptions


class LabForm(forms.Form):
    """What holds until an analysis says otherwise."""

    hours_per_run = number(
        "Hours per run",
        "GPU-hours of one training run at today's batch size. "
        f"Empty: {exact(Assumptions.hours_per_run)}.",
        decimal=True,
    )
    runs_per_year = number(
        "Runs per year",
        f"How often a training is run in a year. Empty: {exact(Assumptions.runs_per_year)}.",
        decimal=True,
    )
    sharing_allowed = tick(
        "Members may share analyses by a link",
        "Whoever has such a link sees that analysis without an account.",
    )

    @classmethod
    def showing(cls, stored: LabSettings) -> LabForm:
        """The form with what holds now."""
        return cls(
            initial={
                "hours_per_run": plain_number(stored.hours_per_run),
                "runs_per_year": plain_number(stored.runs_per_year),
                "sharing_allowed": stored.sharing_allowed,
            }
        )

    def save(self, member: User) -> bool:
        """Store it, or put the engine's messages beside the fields."""
        try:
            services.save_settings(member, **self.cleaned_data)
        except InvalidInput as error:
            _show(error, self)
            return False
        return True


class PriceForm(forms.Form):
    """What one GPU costs; several may be open in one table, so its ids name the GPU."""

    price_per_hour_usd = number("USD per hour of one GPU", decimal=True)

    def __init__(self, held: HeldPrice, data: Mapping[str, str] | None = None) -> None:
        value = "" if held.usd is None else plain_number(held.usd)
        super().__init__(
            data, auto_id=f"id_{slugify(held.gpu)}_%s", initial={"price_per_hour_usd": value}
        )
        self.fields["price_per_hour_usd"].widget.attrs["autofocus"] = True
        self._held = held

    def save(self, member: User) -> HeldPrice | None:
        """Store it, or put the engine's message beside the field.

        Returns:
            What holds now; ``None`` if the form now has errors.
        """
        try:
            price = self.cleaned_data["price_per_hour_usd"]
            return services.set_price(member, self._held.gpu, price)
        except InvalidInput as error:
            _show(error, self)
            return None


def _show(error: InvalidInput, form: forms.Form) -> None:
    for name, message in error.fields.items():
        form.add_error(name, f"{message[:1].upper()}{message[1:]}.")
