"""The pages of an admin: the lab's settings, and the price of a GPU in the catalogue table."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from analyses.formatting import exact, plain_number
from analyses.lab import settings as lab
from analyses.lab.settings import HeldPrice
from analyses.models import ChannelFormat, LabSettings
from analyses.models.notifications import MAX_URL_LENGTH
from analyses.notifications import lab_channel, message
from analyses.notifications.webhook import NotDelivered
from analyses.pages.access import MemberRequest
from analyses.pages.new.widgets import number, tick
from analyses.pages.notifications import checked_url
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.assumptions import Assumptions
from memorymark_site.accounts.roles import Role, needs

_PRICE = "lab/_price.html"
_PRICE_FORM = "lab/_price_form.html"


@needs(Role.ADMIN)
@never_cache  # it shows the channel's URL, by which anyone can post there
@require_http_methods(["GET", "HEAD", "POST"])
def edit_settings(request: MemberRequest) -> HttpResponse:
    """The lab's settings."""
    stored = lab.lab_settings()
    form = LabForm(request.POST) if request.method == "POST" else LabForm.showing(stored)
    if form.is_bound and form.is_valid() and form.save(request.user):
        messages.success(request, "Saved. Changes apply to new analyses only.")
        return redirect("analyses:lab")
    return _page(request, form, ChannelForm.showing(stored), stored)


@needs(Role.ADMIN)
@require_POST
def channel(request: MemberRequest) -> HttpResponse:
    """Store the lab's channel; without a URL, turn it off."""
    form = ChannelForm(request.POST)
    if not form.is_valid():
        stored = lab.lab_settings()
        return _page(request, LabForm.showing(stored), form, stored)
    lab_channel.save(request.user, form.cleaned_data["format"], form.cleaned_data["url"])
    messages.success(request, "Saved the lab's channel.")
    return redirect("analyses:lab")


@needs(Role.ADMIN)
@require_POST
def test_channel(request: MemberRequest) -> HttpResponse:
    """Post a test message to the stored channel, and show what happened."""
    try:
        answer = lab_channel.post(message.of_test())
    except NotDelivered as error:
        messages.error(request, f"Lab channel: {error}.")
    else:
        messages.success(request, f"Lab channel: {answer}.")
    return redirect("analyses:lab")


def _page(
    request: MemberRequest, form: LabForm, channel_form: ChannelForm, stored: LabSettings
) -> HttpResponse:
    context = {
        "form": form,
        "channel_form": channel_form,
        "stored": stored,
        "nav": "lab",
    }
    return render(request, "lab/lab.html", context)


@needs(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def price(request: MemberRequest) -> HttpResponse:
    """The form of a GPU's price: in its table cell for htmx, else on a page of its own.

    ``POST`` stores the price, or with ``reset`` goes back to the catalogue's. ``GET`` with
    ``shown`` returns the cell as it was before editing.
    """
    held = _price_asked_for(request)
    if request.method == "POST":
        return _change(request, held)
    if request.htmx and "shown" in request.GET:
        return _cell(request, held)
    return _form(request, held, PriceForm(held))


def _change(request: MemberRequest, held: HeldPrice) -> HttpResponse:
    given = {} if "reset" in request.POST else request.POST.dict()  # empty: the catalogue's
    form = PriceForm(held, given)
    now_held = form.save(request.user) if form.is_valid() else None
    if now_held is None:
        return _form(request, held, form)
    if request.htmx:
        return _cell(request, now_held)
    messages.success(request, f"Saved the price of {held.display_name}.")
    return redirect("analyses:gpus")


def _form(request: MemberRequest, held: HeldPrice, form: PriceForm) -> HttpResponse:
    in_cell = bool(request.htmx)
    template = _PRICE_FORM if in_cell else "lab/price.html"
    shown = {"price": held, "form": form, "in_cell": in_cell, "nav": "gpus"}
    return render(request, template, shown)


def _cell(request: MemberRequest, held: HeldPrice) -> HttpResponse:
    """The cell, with the focus on the link that opened the form."""
    return render(request, _PRICE, {"price": held, "focus": True})


def _price_asked_for(request: MemberRequest) -> HeldPrice:
    gpu = request.GET.get("gpu", "")
    if gpu not in GPUS and gpu not in lab.kinds_outside_the_catalogue():
        raise Http404("There is no such GPU.")
    return lab.price_of(gpu)


class LabForm(forms.Form):
    """The lab's settings."""

    hours_per_run = number(
        "Hours per run",
        "GPU-hours of one training run at today's batch size. "
        f"Leave blank for {exact(Assumptions.hours_per_run)}.",
        decimal=True,
    )
    runs_per_year = number(
        "Runs per year",
        f"Training runs per year. Leave blank for {exact(Assumptions.runs_per_year)}.",
        decimal=True,
    )
    grid_co2e_grams_per_kwh = number(
        "Grid intensity",
        "Grams of CO2e per kWh of your electricity. Leave blank for "
        f"{exact(Assumptions.grid_co2e_grams_per_kwh)}, the world average in 2023 (Ember).",
        decimal=True,
    )
    sharing_allowed = tick(
        "Members can share analyses by link",
        "Anyone with the link can see that analysis without an account.",
    )

    @classmethod
    def showing(cls, stored: LabSettings) -> LabForm:
        """The form filled with the current settings."""
        return cls(
            initial={
                **{name: plain_number(getattr(stored, name)) for name in lab.LAB_DEFAULTS},
                "sharing_allowed": stored.sharing_allowed,
            }
        )

    def save(self, member: User) -> bool:
        """Store them, or show the engine's messages at the fields; returns whether it did."""
        try:
            lab.save_settings(member, **self.cleaned_data)
        except InvalidInput as error:
            _show(error, self)
            return False
        return True


class ChannelForm(forms.Form):
    """The lab's channel: an incoming webhook, and the format that it takes."""

    format = forms.ChoiceField(
        choices=ChannelFormat.choices, initial=ChannelFormat.SLACK, label="Format"
    )
    url = forms.CharField(
        required=False,
        max_length=MAX_URL_LENGTH,
        label="Webhook URL",
        help_text="Of an incoming webhook of Slack or Mattermost, or of a Teams workflow. "
        "Leave blank for no channel.",
        widget=forms.URLInput(attrs={"placeholder": "https://", "inputmode": "url"}),
    )

    @classmethod
    def showing(cls, stored: LabSettings) -> ChannelForm:
        """The form filled with the current channel."""
        kind = stored.channel_format or ChannelFormat.SLACK
        return cls(initial={"format": kind, "url": stored.channel_url})

    def clean_url(self) -> str:
        return checked_url(str(self.cleaned_data["url"]))


class PriceForm(forms.Form):
    """The price of one GPU. Several may be open in one table, so its ids contain the GPU."""

    price_per_hour_usd = number("USD per GPU-hour", decimal=True)

    def __init__(self, held: HeldPrice, data: Mapping[str, str] | None = None) -> None:
        value = "" if held.usd is None else plain_number(held.usd)
        super().__init__(
            data, auto_id=f"id_{slugify(held.gpu)}_%s", initial={"price_per_hour_usd": value}
        )
        self.fields["price_per_hour_usd"].widget.attrs["autofocus"] = True
        self._held = held

    def save(self, member: User) -> HeldPrice | None:
        """Store it and return it, or show the engine's message at the field."""
        try:
            price = self.cleaned_data["price_per_hour_usd"]
            return lab.set_price(member, self._held.gpu, price)
        except InvalidInput as error:
            _show(error, self)
            return None


def _show(error: InvalidInput, form: forms.Form) -> None:
    for name, why in error.fields.items():
        form.add_error(name, f"{why[:1].upper()}{why[1:]}.")
