"""What is stored of members besides Django's own user."""

from django.conf import settings
from django.db import models
from knox.models import AbstractAuthToken


class Viewer(models.Model):
    """That a user may look at everything and change nothing.

    Whoever is no viewer is a member, or an admin where Django's ``is_staff`` says so: thus a role
    is written down once, and an account that is made in any other way has one too.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="viewer"
    )

    def __str__(self) -> str:
        return f"{self.user} is a viewer"


class SetupLink(models.Model):
    """The one-time link with which the first admin is made; only a digest of its token is kept."""

    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"set-up link of {self.created_at:%Y-%m-%d %H:%M} UTC"


class ApiToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token a script signs in with; only a digest of it is kept."""

    name = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return f"{self.token_key}… of {self.user}"
