"""Analyses, nodes, links and training runs in Django's admin: to see and delete, not to edit."""

from collections.abc import Callable
from typing import TypeVar, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django_q.models import Failure, Schedule, Success

from analyses.models import Analysis, Node, ShareLink, TrainingRun
from analyses.pages.history.selection import note_deletion
from analyses.savings.aggregation import recounting
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

# Their forms take the name of any function, and can queue finished tasks again.
admin.site.unregister([Failure, Schedule, Success])

M = TypeVar("M", bound=Model)


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """Read-only rows; deletions go to the audit log.

    Attributes:
        note_deletion: Writes a row's deletion by an admin to the log.
    """

    note_deletion: Callable[[User, M], None]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: M) -> None:
        self.delete_queryset(request, self.model._default_manager.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[M]) -> None:
        with transaction.atomic():
            for one in queryset:
                self.note_deletion(cast(User, request.user), one)
            queryset.delete()


@admin.register(Analysis)
class AnalysisAdmin(ReadOnlyAdmin[Analysis]):
    """All analyses."""

    list_display = ("id", "model", "gpu", "owner", "status", "queued_at")
    list_filter = ("status", "model", "gpu")

    list_select_related = ("owner",)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Analysis]) -> None:
        """Delete them and recount the savings without them."""
        with recounting(queryset):
            super().delete_queryset(request, queryset.select_related("owner"))

    def note_deletion(self, admin: User, one: Analysis) -> None:
        note_deletion(admin, one)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin[Node]):
    """All nodes; delete those of machines that are gone."""

    list_display = ("name", "gpu_name", "heartbeat_at")

    def note_deletion(self, admin: User, one: Node) -> None:
        audit.note(admin, Action.NODE_DELETED, one.name, before=one.gpu_name)


@admin.register(ShareLink)
class ShareLinkAdmin(ReadOnlyAdmin[ShareLink]):
    """All share links; deleting one revokes it."""

    list_display = (
        "analysis", "created_by", "created_at", "expires_at", "revoked_at", "times_seen",
    )  # fmt: skip
    list_select_related = ("analysis", "created_by")

    def note_deletion(self, admin: User, one: ShareLink) -> None:
        audit.note(admin, Action.SHARE_LINK_REVOKED, str(one.analysis))


@admin.register(TrainingRun)
class TrainingAdmin(ReadOnlyAdmin[TrainingRun]):
    """All recorded training runs, with or without an analysis."""

    list_display = ("id", "owner", "analysis", "batch_size", "device_name", "host", "verifies")
    list_select_related = ("owner", "analysis")
    list_filter = ("verifies",)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[TrainingRun]) -> None:
        """Delete them and recount the savings without them."""
        with recounting(Analysis.objects.filter(trainings__in=queryset)):
            super().delete_queryset(request, queryset)

    def note_deletion(self, admin: User, one: TrainingRun) -> None:
        of = f" of analysis {one.analysis_id}" if one.analysis_id else ""
        was = f"{one} by {one.owner.get_username()}"
        audit.note(admin, Action.TRAINING_DELETED, f"training {one.pk}{of}", before=was)
