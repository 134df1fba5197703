"""The pages of an admin: a GPU that the catalogue lacks, by its data sheet."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from analyses.formatting import plain_number
from analyses.gpus import added_gpus
from analyses.models import AddedGpu
from analyses.pages.access import MemberRequest
from analyses.pages.new.widgets import input_for
from engine.core.errors import InvalidInput
from engine.core.fields import described_fields
from engine.gpus.data_sheet import DataSheet
from memorymark_site.accounts.roles import Role, needs

_SECTIONS = {
    "The chip": ("name", "vendor", "compute_capability", "multiprocessors", "power_watts"),
    "Memory": ("memory_gb", "reported_mib", "bandwidth_gb_per_second"),
    "Peak rates, dense": ("fp32_tflops", "tf32_tflops", "fp16_tflops", "bf16_tflops"),
    "Price": ("price_per_hour_usd",),
}


@needs(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: MemberRequest) -> HttpResponse:
    """The form of a new GPU."""
    form = DataSheetForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and (row := form.save(request.user)):
        messages.success(request, f"Added {row}. You can now choose it for an analysis.")
        return redirect("analyses:gpus")
    return _page(request, form, None)


@needs(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: MemberRequest, gpu: str) -> HttpResponse:
    """The form of a GPU that was added."""
    row = _row(gpu)
    form = DataSheetForm(request.POST if request.method == "POST" else None, row=row)
    if form.is_bound and form.is_valid() and form.save(request.user):
        messages.success(request, f"Saved {row}. Analyses that have run keep their results.")
        return redirect("analyses:gpus")
    return _page(request, form, row)


@needs(Role.ADMIN)
@require_POST
def remove(request: MemberRequest, gpu: str) -> HttpResponse:
    """Offer a GPU no more."""
    row = _row(gpu)
    added_gpus.remove(request.user, row)
    messages.success(request, f"Removed {row}. Its analyses stay as they are.")
    return redirect("analyses:gpus")


def _row(gpu: str) -> AddedGpu:
    row = added_gpus.rows().get(gpu)
    if row is None:
        raise Http404("No admin has added such a GPU.")
    return row


def _page(request: MemberRequest, form: DataSheetForm, row: AddedGpu | None) -> HttpResponse:
    context = {
        "form": form,
        "row": row,
        "origin": added_gpus.origin_of(row) if row else "",
        "sections": {title: [form[name] for name in names] for title, names in _SECTIONS.items()},
        "nav": "gpus",
    }
    return render(request, "lab/added_gpu.html", context)


class DataSheetForm(forms.Form):
    """The data sheet of a GPU; the engine checks what is entered."""

    def __init__(self, data: Mapping[str, str] | None = None, *, row: AddedGpu | None = None):
        super().__init__(data, initial=_typed(row.sheet) if row else {"vendor": "NVIDIA"})
        for name, field in described_fields(DataSheet).items():
            self.fields[name] = input_for(field)
        self._row = row

    def save(self, member: User) -> AddedGpu | None:
        """Store it and return it, or show the engine's messages at the fields."""
        given = self.cleaned_data
        try:
            if self._row is None:
                return added_gpus.add(member, given)
            return added_gpus.change(member, self._row, given)
        except InvalidInput as error:
            for name, message in error.fields.items():
                self.add_error(name, f"{message[:1].upper()}{message[1:]}.".replace("?.", "?"))
            return None


def _typed(sheet: Mapping[str, object]) -> dict[str, str]:
    """The values as they are typed into the form."""
    return {
        name: plain_number(value) if isinstance(value, (int, float)) else str(value)
        for name, value in sheet.items()
        if value is not None
    }
