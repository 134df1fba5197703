"""Analyses and nodes in the admin site: to see and to delete, never to edit."""

from typing import TypeVar, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from analyses.history.selection import note_deletion
from analyses.models import Analysis, Node, ShareLink, Training
from analyses.savings.counting import counted_anew
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

M = TypeVar("M", bound=Model)


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """What the worker wrote is not changed by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Never."""
        return False


@admin.register(Analysis)
class AnalysisAdmin(ReadOnlyAdmin[Analysis]):
    """Every analysis of the lab."""

    list_display = ("id", "model", "gpu", "owner", "status", "queued_at")
    list_filter = ("status", "model", "gpu")

    def delete_model(self, request: HttpRequest, obj: Analysis) -> None:
        """Delete one."""
        self.delete_queryset(request, Analysis.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Analysis]) -> None:
        """Delete what was ticked."""
        with counted_anew(queryset):
            for analysis in queryset.select_related("owner"):
                note_deletion(cast(User, request.user), analysis)
            queryset.delete()


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin[Node]):
    """A row of a machine that is no more can be deleted here."""

    list_display = ("name", "gpu_name", "heartbeat_at")


@admin.register(ShareLink)
class ShareLinkAdmin(ReadOnlyAdmin[ShareLink]):
    """Every link that shows an analysis to people without an account; deleting one ends it."""

    list_display = (
        "analysis", "created_by", "created_at", "expires_at", "revoked_at", "times_seen",
    )  # fmt: skip
    list_select_related = ("analysis", "created_by")

    def delete_model(self, request: HttpRequest, obj: ShareLink) -> None:
        """Delete one."""
        self.delete_queryset(request, ShareLink.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ShareLink]) -> None:
        """Delete what was ticked."""
        with transaction.atomic():
            for link in queryset.select_related("analysis"):
                audit.note(cast(User, request.user), Action.SHARE_LINK_REVOKED, str(link.analysis))
            queryset.delete()


@admin.register(Training)
class TrainingAdmin(ReadOnlyAdmin[Training]):
    """Every training that has reported, with an analysis of the lab or without."""

    list_display = ("id", "owner", "analysis", "batch_size", "device_name", "host", "verifies")
    list_select_related = ("owner", "analysis")
    list_filter = ("verifies",)
