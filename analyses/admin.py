"""Analyses and nodes in the admin site: to see and to delete, never to edit."""

from typing import TypeVar, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django_q.models import Failure, OrmQ, Schedule, Success

from analyses.history.selection import note_deletion
from analyses.models import Analysis, Node, ShareLink, Training
from analyses.savings.counting import counted_anew
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

# They would take the name of any function from a form, and queue what has been run again.
admin.site.unregister([Failure, OrmQ, Schedule, Success])

M = TypeVar("M", bound=Model)


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """What the worker wrote is not changed by hand; what is deleted is in the audit log."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Never."""
        return False

    def delete_model(self, request: HttpRequest, obj: M) -> None:
        """Delete one."""
        self.delete_queryset(request, self.model._default_manager.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[M]) -> None:
        """Delete what was ticked."""
        with transaction.atomic():
            for one in queryset:
                self.note_deletion(cast(User, request.user), one)
            queryset.delete()

    def note_deletion(self, admin: User, one: M) -> None:
        """Write down that this goes."""
        raise NotImplementedError


@admin.register(Analysis)
class AnalysisAdmin(ReadOnlyAdmin[Analysis]):
    """Every analysis of the lab."""

    list_display = ("id", "model", "gpu", "owner", "status", "queued_at")
    list_filter = ("status", "model", "gpu")

    list_select_related = ("owner",)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Analysis]) -> None:
        """Delete what was ticked, and count what is saved without it."""
        with counted_anew(queryset):
            super().delete_queryset(request, queryset.select_related("owner"))

    def note_deletion(self, admin: User, one: Analysis) -> None:
        """As everywhere."""
        note_deletion(admin, one)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin[Node]):
    """A row of a machine that is no more can be deleted here."""

    list_display = ("name", "gpu_name", "heartbeat_at")

    def note_deletion(self, admin: User, one: Node) -> None:
        """By its name."""
        audit.note(admin, Action.NODE_DELETED, one.name, before=one.gpu_name)


@admin.register(ShareLink)
class ShareLinkAdmin(ReadOnlyAdmin[ShareLink]):
    """Every link that shows an analysis to people without an account; deleting one ends it."""

    list_display = (
        "analysis", "created_by", "created_at", "expires_at", "revoked_at", "times_seen",
    )  # fmt: skip
    list_select_related = ("analysis", "created_by")

    def note_deletion(self, admin: User, one: ShareLink) -> None:
        """As when it is revoked."""
        audit.note(admin, Action.SHARE_LINK_REVOKED, str(one.analysis))


@admin.register(Training)
class TrainingAdmin(ReadOnlyAdmin[Training]):
    """Every training that has reported, with an analysis of the lab or without."""

    list_display = ("id", "owner", "analysis", "batch_size", "device_name", "host", "verifies")
    list_select_related = ("owner", "analysis")
    list_filter = ("verifies",)

    def note_deletion(self, admin: User, one: Training) -> None:
        """By what it was, and whose."""
        of = f" of analysis {one.analysis_id}" if one.analysis_id else ""
        was = f"{one} by {one.owner.get_username()}"
        audit.note(admin, Action.TRAINING_DELETED, f"training {one.pk}{of}", before=was)
