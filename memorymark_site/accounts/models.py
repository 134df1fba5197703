"""What is stored of members besides Django's own user."""

from django.db import models
from knox.models import AbstractAuthToken


class SetupLink(models.Model):
    """The one-time link with which the first admin is made; only a digest of its token is kept."""

    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"set-up link of {self.created_at:%Y-%m-%d %H:%M} UTC"


class Scope(models.TextChoices):
    """What a token may do on behalf of its member."""

    READ = "read", "Read"
    WRITE = "write", "Read and write"


class ApiToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token a script signs in with; only a digest of it is kept.

    ``token_key`` is its beginning, by which people tell tokens apart; the rest has 52 digits more.
    ``last_used_at`` lags up to :data:`memorymark_site.accounts.tokens.NOTE_USE_EVERY` behind.
    """

    name = models.CharField(max_length=100, blank=True)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.WRITE)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.token_key}… of {self.user}"
