"""API tokens in the admin site: to see and to revoke. Accounts have a page of their own."""

from typing import cast

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from memorymark_site.accounts.models import ApiToken
from memorymark_site.accounts.tokens import note_revoked

# They would bypass the audit log and the last admin's guard, and show the keys of second factors.
admin.site.unregister(
    [Group, User, EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken]
)

_SHOWN = ("token_key", "user", "name", "scope", "created", "expiry", "last_used_at")


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Each member makes tokens on a page of their own; an admin can only delete them here."""

    list_display = _SHOWN
    fields = _SHOWN
    list_filter = ("scope",)
    search_fields = ("user__username", "name")

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        """Revoke one."""
        self.delete_queryset(request, ApiToken.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke what was ticked."""
        with transaction.atomic():
            for token in queryset.select_related("user"):
                note_revoked(cast(User, request.user), token)
            queryset.delete()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: the page could not show the token."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Never: what a member was shown of a token holds until it ends."""
        return False
