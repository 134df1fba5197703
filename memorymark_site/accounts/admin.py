"""API tokens in the admin site: to see and to revoke."""

from django.contrib import admin
from django.http import HttpRequest

from memorymark_site.accounts.models import ApiToken


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Tokens are made by ``manage.py token``, which alone can show one."""

    list_display = ("token_key", "user", "name", "created", "expiry")
    readonly_fields = ("digest", "token_key", "user", "created")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: the page could not show the token."""
        return False
