"""The inbox, and its badge in the head of every page."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST, require_safe

from analyses.models import InboxEntry
from analyses.notifications import inbox
from analyses.pages.access import MemberRequest
from memorymark_site.accounts.roles import Role, needs

PAGE_SIZE = 25
UNREAD, ALL = "unread", "all"


@dataclass(frozen=True)
class InboxRow:
    """An entry with its title and text."""

    entry: InboxEntry
    title: str
    text: str


def unread(request: HttpRequest) -> dict[str, object]:
    """Context processor: ``unread``, counted only if a template shows the badge."""
    return {"unread": SimpleLazyObject(lambda: _badge(request))}


@require_safe
def entries(request: MemberRequest) -> HttpResponse:
    """The entries; for htmx the list alone, or 204 if nothing has changed."""
    shown = ALL if request.GET.get("show") == ALL else UNREAD
    mine = inbox.entries_of(request.user)
    found = mine if shown == ALL else mine.filter(read_at=None)
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = [InboxRow(entry, inbox.title(entry), inbox.sentence(entry)) for entry in page]
    version = "-".join(f"{row.entry.pk}{'r' if row.entry.read_at else ''}" for row in rows)
    if request.htmx and request.GET.get("seen") == version:
        return HttpResponse(status=204)
    context = {"nav": "inbox", "shown": shown, "page": page, "rows": rows, "version": version}
    template = "inbox/_entries.html" if request.htmx else "inbox/inbox.html"
    return render(request, template, context)


@require_safe
def badge(request: MemberRequest) -> HttpResponse:
    """The badge, or 204 if it shows the count already."""
    count = _badge(request)
    if request.GET.get("seen") == count:
        return HttpResponse(status=204)
    return render(request, "inbox/_badge.html", {"unread": count})


@needs(Role.VIEWER)  # a former member can still clear the inbox
@require_POST
def read(request: MemberRequest) -> HttpResponse:
    """Mark entries as read: those given as ``entry``, or all with ``all``."""
    pks = [int(text) for text in request.POST.getlist("entry") if text.isdecimal()]
    inbox.mark_read(request.user, None if "all" in request.POST else pks)
    page = redirect("analyses:inbox")
    if request.POST.get("show") == ALL:
        page["Location"] += f"?show={ALL}"
    return page


def _badge(request: HttpRequest) -> str:
    """The count as the badge shows it; empty without unread entries."""
    count = inbox.count_unread(request.user) if request.user.is_authenticated else 0
    if count > inbox.MAX_COUNTED:
        return f"{inbox.MAX_COUNTED}+"
    return str(count) if count else ""
