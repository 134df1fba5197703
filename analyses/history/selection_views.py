"""From ticked analyses to what is done with them: compare, tag, delete."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from analyses.history import labels, selection, table
from analyses.history.forms import TagSelectionForm
from analyses.models import Analysis
from analyses.views import MemberRequest
from memorymark_site.accounts.roles import Role, needs

COMPARE = "/compare/"


@require_safe
def choose(request: MemberRequest) -> HttpResponse:
    """Go from the ticked boxes to the page of the action, with the numbers in its address."""
    pages = {
        "compare": COMPARE,
        "tag": reverse("analyses:tag"),
        "delete": reverse("analyses:delete"),
    }
    page = pages.get(request.GET.get("action", ""))
    if page is None:
        raise Http404("There is nothing like that to do with analyses.")
    try:
        ids = selection.ids_from(",".join(request.GET.getlist("ids")))
    except selection.BadSelection as error:
        messages.warning(request, str(error))
        return _back(request.GET.get("back", ""))
    fields = {"ids": ",".join(map(str, ids))}
    if page != COMPARE:
        fields["back"] = request.GET.get("back", "")
    return redirect(f"{page}?{urlencode(fields, safe=',')}")


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def tag(request: MemberRequest) -> HttpResponse:
    """Put tags on the selected analyses, or take them off."""
    analyses = _selected(request)
    form = TagSelectionForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        names = form.cleaned_data["tags"]
        removes = request.POST.get("action") == "remove"
        (labels.remove_tags if removes else labels.add_tags)(analyses, names)
        done = "taken off" if removes else "put on"
        messages.success(request, f"{', '.join(names)} {done} {_count(len(analyses))}.")
        return _back(request.GET.get("back", ""))
    context = {"analyses": analyses, "form": form, "nav": "list"}
    return render(request, "history/tag.html", context)


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: MemberRequest) -> HttpResponse:
    """Say what goes; delete it once that is confirmed."""
    deletion = selection.deletion_of(request.user, _selected(request))
    if request.method == "POST" and deletion.gone:
        selection.delete(deletion.gone, request.user)
        messages.success(request, f"{_count(len(deletion.gone))} deleted.")
        return _back(request.GET.get("back", ""))
    context = {"deletion": deletion, "back": _address(request.GET.get("back", "")), "nav": "list"}
    return render(request, "history/delete.html", context)


def _selected(request: MemberRequest) -> list[Analysis]:
    try:
        return selection.selected(request.user, selection.ids_from(request.GET.get("ids", "")))
    except selection.BadSelection as error:
        raise Http404(str(error)) from error


def _back(query: str) -> HttpResponse:
    return redirect(_address(query))


def _address(query: str) -> str:
    """The history as it was; only its own fields are taken from the query."""
    known = table.query_of(QueryDict(query))
    return f"{reverse('analyses:list')}{'?' if known else ''}{known}"


def _count(number: int) -> str:
    return f"{number} {pluralize(number, 'analysis,analyses')}"
