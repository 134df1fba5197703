"""API tokens in the admin site, to view and revoke. Accounts have pages of their own."""

from importlib import import_module
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

for _app in ("allauth.account", "allauth.mfa", "allauth.socialaccount", "django.contrib.auth"):
    import_module(f"{_app}.admin")  # accounts is the first app, and these register themselves

# Their pages would bypass the audit log and the last-admin check, and show second-factor keys.
admin.site.unregister(
    [Group, User, EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken]
)

_SHOWN = ("token_key", "user", "name", "scope", "created", "expiry", "last_used_at")


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Members create tokens on their own page; admins can only delete them here."""

    list_display = _SHOWN
    fields = _SHOWN
    list_filter = ("scope",)
    search_fields = ("user__username", "name")

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        self.delete_queryset(request, ApiToken.objects.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        with transaction.atomic():
            for token in queryset.select_related("user"):
                note_revoked(cast(User, request.user), token)
            queryset.delete()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: this page could not show the token."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Never: a token stays what its owner was shown."""
        return False
