"""Reports to the page of an analysis: where its lines send a run, and files that bring one."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from analyses.pages.access import MemberRequest, find_analysis
from analyses.permissions import may_change
from analyses.training_runs.uploads import store_upload
from engine.client.connection import Settings
from engine.client.errors import Misconfigured
from engine.core.errors import InvalidInput
from engine.core.numbers import whole
from memorymark_site.accounts.links import passed_on


@dataclass(frozen=True)
class Reporting:
    """The settings with which a training job reports to this lab.

    Attributes:
        variables: Lines of a shell that name the site; the token is the member's to add.
    """

    variables: list[str]

    @classmethod
    def of(cls, request: MemberRequest) -> Reporting:
        address = passed_on(request, "/").rstrip("/")
        lines = [f"export MEMORYMARK_URL={address}"]
        try:
            Settings(address, "mm_token")
        except Misconfigured:  # without encryption, which the client does not allow by itself
            lines.append("export MEMORYMARK_ALLOW_HTTP=true")
        return cls(lines)


@require_POST
def upload(request: MemberRequest, pk: int) -> HttpResponse:
    """Store a file of recorded runs; the page then shows them beside the prediction."""
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only the analysis's owner or an admin can add runs to it.")
    file = request.FILES.get("file")
    if file is None:
        messages.warning(request, "Choose a file, such as training_runs.jsonl.")
        return redirect("analyses:detail", pk=pk)
    try:
        with transaction.atomic():
            stored = store_upload(request.user, analysis, file)
    except InvalidInput as error:
        messages.warning(request, f"Nothing was added: {'; '.join(error.fields.values())}.")
        return redirect("analyses:detail", pk=pk)
    count = len(stored.new)
    said = f"{whole(count)} training run{'' if count == 1 else 's'} added."
    if stored.known:
        said += f" {whole(stored.known)} had been reported before."
    elsewhere = sorted({run.analysis_id for run in stored.new if run.analysis_id} - {pk})
    if elsewhere:
        named = ", ".join(f"#{number}" for number in elsewhere)
        said += f" Some name another analysis and are there: {named}."
    messages.success(request, said)
    return redirect("analyses:detail", pk=pk)
