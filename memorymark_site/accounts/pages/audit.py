"""The page of the audit log, and the same as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import BadRequest
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from memorymark_site.accounts.models import Action, AuditEntry
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.operations.csv_text import Cell, csv_lines
from memorymark_site.operations.downloads import download, rows_in_order

PAGE_SIZE = 50
CHUNK = 100
_COLUMNS = ("number", "at", "who", "action", "what", "before", "after")


class AuditFilter(forms.Form):
    """Filters of the audit log; an id counts down the pages, as entries only ever come on top."""

    who = forms.CharField(required=False, max_length=150, label="Member")
    action = forms.ChoiceField(
        required=False, choices=[("", "any"), *Action.choices], label="Action"
    )
    q = forms.CharField(required=False, max_length=300, label="Target")
    since = forms.DateField(
        required=False, label="Since", widget=forms.DateInput(attrs={"type": "date"})
    )
    before = forms.IntegerField(
        required=False, min_value=1, max_value=2**63 - 1, widget=forms.HiddenInput
    )

    def found(self) -> QuerySet[AuditEntry]:
        """The entries that are looked for, newest first; none where a field is wrong."""
        if not self.is_valid():
            return AuditEntry.objects.none()
        given = self.cleaned_data
        wanted = Q()
        if given["who"]:
            wanted &= Q(actor_name__iexact=given["who"])
        if given["action"]:
            wanted &= Q(action=given["action"])
        if given["q"]:
            asked = given["q"]
            wanted &= (
                Q(what__icontains=asked) | Q(before__icontains=asked) | Q(after__icontains=asked)
            )
        if given["since"]:
            wanted &= Q(at__date__gte=given["since"])
        return AuditEntry.objects.filter(wanted)

    def page(self) -> tuple[list[AuditEntry], int | None]:
        """One page, and the number before which the next one begins; ``None`` at the end."""
        found = self.found()
        if self.is_valid() and self.cleaned_data["before"]:
            found = found.filter(pk__lt=self.cleaned_data["before"])
        entries = list(found[: PAGE_SIZE + 1])
        more = len(entries) > PAGE_SIZE
        return entries[:PAGE_SIZE], entries[PAGE_SIZE - 1].pk if more else None

    @property
    def query(self) -> str:
        """The filters as they stand in an address, without the page."""
        known = {name: self.data.get(name, "") for name in self.fields if name != "before"}
        return urlencode({name: value for name, value in known.items() if value})


@needs(Role.ADMIN)
@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def audit_log(request: HttpRequest) -> HttpResponse:
    """The entries by page; for htmx the table alone."""
    form = AuditFilter(request.GET)
    entries, next_before = form.page()
    context = {
        "form": form,
        "entries": entries,
        "next_before": next_before,
        "query": form.query,
        "is_later_page": bool(form.is_valid() and form.cleaned_data["before"]),
        "nav": "audit",
    }
    htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
    part = htmx.target == "entries"
    return render(request, "accounts/_audit.html" if part else "accounts/audit.html", context)


@needs(Role.ADMIN)
@require_safe
def audit_csv(request: HttpRequest) -> HttpResponseBase:
    """All that is looked for, every page of it."""
    form = AuditFilter(request.GET)
    if not form.is_valid():
        raise BadRequest(form.errors.as_text())
    head: list[list[Cell]] = [list(_COLUMNS)]
    lines = csv_lines(chain(head, _lines(form.found())))
    return download(request, lines, kind="text/csv; charset=utf-8", name="audit.csv")


def _lines(entries: QuerySet[AuditEntry]) -> Iterator[list[Cell]]:
    for entry in rows_in_order(entries, CHUNK):
        yield [
            entry.pk, f"{entry.at:%Y-%m-%dT%H:%M:%SZ}", entry.actor_name, entry.action, entry.what,
            entry.before, entry.after,
        ]  # fmt: skip
