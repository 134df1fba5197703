"""Saving and deleting a view of the history."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST

from analyses.history import saved_views, table
from analyses.history.forms import SaveViewForm
from analyses.permissions import may_delete_view
from analyses.views import MemberRequest


@require_POST
def save(request: MemberRequest) -> HttpResponse:
    """Save what the history shows under a name."""
    form = SaveViewForm(request.POST)
    query = table.query_of(QueryDict(request.POST.get("query", "")))
    if form.is_valid():
        name, is_shared = form.cleaned_data["name"], form.cleaned_data["is_shared"]
        saved_views.save(request.user, name, query, is_shared=is_shared)
        messages.success(request, f"Saved as “{name}”.")
    else:
        for field, errors in form.errors.items():
            messages.error(request, f"The view is not saved. {field.capitalize()}: {errors[0]}")
    return redirect(f"{reverse('analyses:list')}{'?' if query else ''}{query}")


@require_POST
def delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Delete a view; the analyses that it shows stay."""
    view = saved_views.views_of(request.user).filter(pk=pk).first()
    if view is None:
        raise Http404("There is no such saved view.")
    if not may_delete_view(request.user, view):
        raise PermissionDenied("Only who has saved a view, or an admin, may delete it.")
    view.delete()
    # Another's cannot be given back to them; what it showed can be saved again by anybody.
    context = {"view": view, "can_be_undone": view.owner_id == request.user.pk}
    messages.success(request, render_to_string("history/_view_deleted.html", context, request))
    return redirect("analyses:list")
