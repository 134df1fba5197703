"""The pages of an admin: the lab's settings, and the price of a GPU in its table."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from analyses.lab import selectors
from analyses.lab.forms import LabForm, PriceForm
from analyses.lab.selectors import HeldPrice
from analyses.views import MemberRequest
from engine.gpus import GPUS
from memorymark_site.accounts.roles import Role, needs

SHOWN_CHANGES = 20
_PRICE = "lab/_price.html"
_PRICE_FORM = "lab/_price_form.html"


@needs(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def lab(request: MemberRequest) -> HttpResponse:
    """The lab's defaults, and who has changed which price."""
    stored = selectors.lab_settings()
    form = LabForm(request.POST) if request.method == "POST" else LabForm.showing(stored)
    if form.is_bound and form.is_valid() and form.save(request.user):
        messages.success(request, "Saved. It holds for what is submitted from now on.")
        return redirect("analyses:lab")
    context = {
        "form": form,
        "stored": stored,
        "changes": selectors.changes()[:SHOWN_CHANGES],
        "nav": "lab",
    }
    return render(request, "lab/lab.html", context)


@needs(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def price(request: MemberRequest) -> HttpResponse:
    """The form of a GPU's price: in its cell of the table for htmx, else on a page of its own.

    ``POST`` stores the price, or with ``reset`` goes back to the catalogue's. ``GET`` with
    ``shown`` gives the cell as it was before editing.
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
    messages.success(request, f"The price of {held.display_name} is stored.")
    return redirect("analyses:gpus")


def _form(request: MemberRequest, held: HeldPrice, form: PriceForm) -> HttpResponse:
    template = _PRICE_FORM if request.htmx else "lab/price.html"
    return render(request, template, {"price": held, "form": form, "nav": "gpus"})


def _cell(request: MemberRequest, held: HeldPrice) -> HttpResponse:
    """The cell; the cursor goes back to the link that opened the form."""
    return render(request, _PRICE, {"price": held, "focus": True})


def _price_asked_for(request: MemberRequest) -> HeldPrice:
    gpu = request.GET.get("gpu", "")
    if gpu not in GPUS and gpu not in selectors.kinds_outside_the_catalogue():
        raise Http404("There is no such GPU.")
    return selectors.price_of(gpu)
