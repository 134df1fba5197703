"""API tokens in the admin site: to see that they are there, and to revoke."""

from django.contrib import admin
from django.http import HttpRequest

from memorymark_site.accounts.models import ApiToken

_SHOWN = ("token_key", "user", "name", "scope", "created", "expiry", "last_used_at")


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Each member makes tokens on a page of their own; an admin can only delete them here."""

    list_display = _SHOWN
    fields = _SHOWN
    list_filter = ("scope",)
    search_fields = ("user__username", "name")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: the page could not show the token."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Never: what a member was shown of a token holds until it ends."""
        return False
