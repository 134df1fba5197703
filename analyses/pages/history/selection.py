"""Several selected analyses at once: compare, tag, put into a project or delete them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.text import get_text_list
from django.views.decorators.http import require_http_methods, require_safe

from analyses import services
from analyses.lab.projects import projects_in_use
from analyses.models import FINAL_STATUSES, Analysis, LogLine, Note, ShareLink, Trial
from analyses.pages.access import MemberRequest
from analyses.pages.history.address import query_of
from analyses.pages.history.labels import (
    TAGGINGS,
    ProjectField,
    TagsField,
    add_tags,
    remove_tags,
)
from analyses.permissions import may_change
from analyses.savings.aggregation import recounting
from analyses.selectors import visible_to
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.roles import Role, needs

MAX_SELECTED = 200
"""More than anyone ticks, and few enough for one SQL statement."""


class BadSelection(Exception):
    """The ids in an address cannot be used; the message says which and why."""


class TagSelectionForm(forms.Form):
    """Tags to add to the selected analyses, or to remove."""

    tags = TagsField(help_text="Comma-separated, e.g. baseline, thesis")


class ProjectSelectionForm(forms.Form):
    """The project of the selected analyses; empty takes them out of theirs."""

    project = ProjectField(
        help_text="A new name makes a new project. Leave it empty to take them out of theirs."
    )


@dataclass(frozen=True)
class Deletion:
    """The effects of deleting a selection.

    Attributes:
        gone: The analyses to delete.
        kept: The analyses that stay, each with the reason.
        trials, log_lines, notes, tags, share_links: Numbers deleted with their analyses.
    """

    gone: list[Analysis]
    kept: list[tuple[Analysis, str]]
    trials: int
    log_lines: int
    notes: int
    tags: int
    share_links: int

    @property
    def losses(self) -> str:
        """The losses besides the analyses, such as ``2 trials and 1 note``; empty if none."""
        counts = {
            "trial": self.trials,
            "log line": self.log_lines,
            "note": self.notes,
            "tag": self.tags,
            "share link": self.share_links,
        }
        parts = [f"{count:,} {name}{'s' * (count != 1)}" for name, count in counts.items() if count]
        return get_text_list(parts, "and")


@require_safe
def choose(request: MemberRequest) -> HttpResponse:
    """Redirect from the ticked boxes to the page of the action, with the ids in its address."""
    action = request.GET.get("action", "")
    if action not in ("compare", "tag", "project", "delete"):
        raise Http404("Unknown action.")
    back = request.GET.get("back", "")
    try:
        ids = _ids_of(request)
    except BadSelection as error:
        messages.warning(request, str(error))
        return redirect(_address(back))
    fields = {"ids": ",".join(map(str, ids))}
    if action != "compare":
        fields["back"] = back
    return redirect(f"{reverse(f'analyses:{action}')}?{urlencode(fields, safe=',')}")


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def tag(request: MemberRequest) -> HttpResponse:
    """Add tags to the selected analyses, or remove them."""
    analyses = _selected(request)
    form = TagSelectionForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        tags, count = ", ".join(form.cleaned_data["tags"]), _count(len(analyses))
        if request.POST.get("action") == "remove":
            remove_tags(analyses, form.cleaned_data["tags"])
            messages.success(request, f"Removed {tags} from {count}.")
        else:
            add_tags(analyses, form.cleaned_data["tags"])
            messages.success(request, f"Added {tags} to {count}.")
        return redirect(_address(request.GET.get("back", "")))
    context = {"analyses": analyses, "form": form, "nav": "list"}
    return render(request, "history/tag.html", context)


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def project(request: MemberRequest) -> HttpResponse:
    """Put the selected analyses into a project, or take them out of theirs."""
    analyses = _selected(request)
    form = ProjectSelectionForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        name, count = form.cleaned_data["project"], _count(len(analyses))
        services.put_into_project(analyses, name)
        done = f"Put {count} into {name}." if name else f"Took {count} out of their projects."
        messages.success(request, done)
        return redirect(_address(request.GET.get("back", "")))
    context = {"analyses": analyses, "form": form, "nav": "list", "names": projects_in_use()}
    return render(request, "history/project.html", context)


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: MemberRequest) -> HttpResponse:
    """Show what would be deleted; delete it once that is confirmed."""
    deletion = deletion_of(request.user, _selected(request))
    back = _address(request.GET.get("back", ""))
    if request.method == "POST" and deletion.gone:
        delete_analyses(deletion.gone, request.user)
        messages.success(request, f"{_count(len(deletion.gone))} deleted.")
        return redirect(back)
    return render(
        request, "history/delete.html", {"deletion": deletion, "back": back, "nav": "list"}
    )


def ids_from(text: str) -> list[int]:
    """The ids in a text such as ``1,2,3``, each once, in their order.

    Raises:
        BadSelection: There are none, too many, or other words.
    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 19)]
    if wrong:
        raise BadSelection(f"“{wrong[0][:20]}” is not the number of an analysis.")
    if not words:
        raise BadSelection("Select at least one analysis first.")
    if len(words) > MAX_SELECTED:
        raise BadSelection(f"You selected {len(words)} analyses. Select at most {MAX_SELECTED}.")
    return list(dict.fromkeys(map(int, words)))


def selected(user: User | AnonymousUser, ids: Sequence[int]) -> list[Analysis]:
    """The analyses with these ids, in their order.

    Raises:
        BadSelection: Some do not exist, or the user may not see them.
    """
    found = visible_to(user).defer("result").in_bulk(list(ids))
    missing = [str(pk) for pk in ids if pk not in found]
    if missing:
        verb = "is no analysis" if len(missing) == 1 else "are no analyses"
        raise BadSelection(f"There {verb} {', '.join(missing)}.")
    return [found[pk] for pk in ids]


def deletion_of(user: User, analyses: Iterable[Analysis]) -> Deletion:
    """The effects of deleting the analyses, as far as the user may delete them."""
    reasons = {analysis: _reason_to_keep(user, analysis) for analysis in analyses}
    gone = [analysis for analysis, reason in reasons.items() if not reason]
    return Deletion(
        gone=gone,
        kept=[(analysis, reason) for analysis, reason in reasons.items() if reason],
        trials=Trial.objects.filter(analysis__in=gone).count(),
        log_lines=LogLine.objects.filter(analysis__in=gone).count(),
        notes=Note.objects.filter(analysis__in=gone).count(),
        tags=TAGGINGS.filter(analysis__in=gone).count(),
        share_links=ShareLink.objects.filter(analysis__in=gone).count(),
    )


def delete_analyses(analyses: Sequence[Analysis], member: User) -> None:
    """Delete analyses that have finished, with all that belongs to them.

    A final state is never left, so no worker can hold one of them.
    """
    pks = [analysis.pk for analysis in analyses]
    finished = Analysis.objects.filter(pk__in=pks, status__in=FINAL_STATUSES)
    with recounting(finished):
        for analysis in finished.select_related("owner").defer("result", "request"):
            note_deletion(member, analysis)
        finished.delete()


def note_deletion(member: User, analysis: Analysis) -> None:
    """Write the deletion to the audit log, with enough to identify the analysis."""
    was = f"{analysis.model} on {analysis.gpu} by {analysis.owner.get_username()}"
    audit.note(member, Action.ANALYSIS_DELETED, f"analysis {analysis.pk}", before=was)


def _reason_to_keep(user: User, analysis: Analysis) -> str:
    if not may_change(user, analysis):
        return f"only {analysis.owner.get_username()} or an admin can delete it"
    return "" if analysis.is_final else "it has not finished; cancel it first"


def _ids_of(request: MemberRequest) -> list[int]:
    """The ids of an address, whether it lists them in one value or in several."""
    return ids_from(",".join(request.GET.getlist("ids")))


def _selected(request: MemberRequest) -> list[Analysis]:
    try:
        return selected(request.user, _ids_of(request))
    except BadSelection as error:
        raise Http404(str(error)) from error


def _address(query: str) -> str:
    """The history with this query, of which only its own fields are taken."""
    known = query_of(QueryDict(query))
    return f"{reverse('analyses:list')}{'?' if known else ''}{known}"


def _count(number: int) -> str:
    return f"{number} {pluralize(number, 'analysis,analyses')}"
