"""The imported training jobs one by one, for admins: who reported which, and deleting them."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from analyses.models import TrainingJob
from analyses.pages.access import MemberRequest
from analyses.training_jobs.services import delete_jobs
from engine.core.numbers import whole
from engine.jobs.record import Reporter
from memorymark_site.accounts.roles import Role, needs

PAGE_SIZE = 50
KEPT = "MEMORYMARK_KEEP_JOB_DAYS"


@needs(Role.ADMIN)
@require_safe
def imported_jobs(request: MemberRequest) -> HttpResponse:
    """List the jobs, the last imported first, or those of one reporter or user."""
    chosen = _chosen(request.GET.get("reporter", ""), request.GET.get("user", ""))
    found = _jobs(chosen).select_related("owner", "imported_by").defer("request")
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "nav": "gpu-hours",
        "chosen": chosen,
        "query": urlencode(chosen),
        "page": page,
        "jobs": list(page),
        "reporters": [(reporter.value, reporter.label) for reporter in Reporter],
        "kept_days": settings.KEPT_DAYS[KEPT],
        "kept_by": KEPT,
    }
    return render(request, "gpu_hours/imported.html", context)


@needs(Role.ADMIN)
@require_POST
def delete(request: MemberRequest) -> HttpResponse:
    """Delete the jobs that are ticked, or all that the filter shows."""
    chosen = _chosen(request.POST.get("reporter", ""), request.POST.get("user", ""))
    jobs = _jobs(chosen)
    if "all" not in request.POST:
        ticked = [int(text) for text in request.POST.getlist("job") if _is_key(text)]
        jobs = jobs.filter(pk__in=ticked)
    count = delete_jobs(
        request.user, jobs, _format_filters(chosen) if "all" in request.POST else ""
    )
    if count:
        messages.success(request, f"Deleted {whole(count)} imported job{'s' * (count != 1)}.")
    else:
        messages.warning(request, "Tick the jobs to delete first.")
    return redirect(f"{reverse('analyses:imported-jobs')}?{urlencode(chosen)}")


def _chosen(reporter: str, user: str) -> dict[str, str]:
    """The fields of the filter that are set."""
    chosen = {"reporter": reporter if reporter in list(Reporter) else "", "user": user.strip()}
    return {name: text for name, text in chosen.items() if text and "\0" not in text}


def _jobs(chosen: dict[str, str]) -> QuerySet[TrainingJob]:
    found = TrainingJob.objects.all()
    if reporter := chosen.get("reporter"):
        found = found.filter(reporter=reporter)
    if user := chosen.get("user"):
        found = found.filter(user__iexact=user)
    return found


def _format_filters(chosen: dict[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in chosen.items()) or "all"


def _is_key(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
