"""API tokens in the admin site: to see and to revoke. Accounts have a page of their own."""

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from memorymark_site.accounts.models import ApiToken

admin.site.unregister([Group, User])  # they would bypass the audit log, and the last admin's guard


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Tokens are made by ``manage.py token``, which alone can show one."""

    list_display = ("token_key", "user", "name", "created", "expiry")
    readonly_fields = ("digest", "token_key", "user", "created")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: the page could not show the token."""
        return False
