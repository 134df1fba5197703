"""API tokens in the admin site: to see and to revoke. Accounts have a page of their own."""

from typing import cast

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, ApiToken

admin.site.unregister([Group, User])  # they would bypass the audit log, and the last admin's guard


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Tokens are made by ``manage.py token``, which alone can show one."""

    list_display = ("token_key", "user", "name", "created", "expiry")
    readonly_fields = ("digest", "token_key", "user", "created")

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        """Revoke one."""
        self.delete_queryset(request, ApiToken.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke what was ticked."""
        with transaction.atomic():
            for token in queryset.select_related("user"):
                what = f"token of {token.user.get_username()}"
                audit.note(cast(User, request.user), Action.TOKEN_REVOKED, what, before=token.name)
            queryset.delete()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: the page could not show the token."""
        return False
