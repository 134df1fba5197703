"""Data about members besides Django's own user."""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from knox.models import AbstractAuthToken

from memorymark_site.accounts.roles import Role


class Viewer(models.Model):
    """Marks a user as a viewer, who may read everything and change nothing.

    Everyone else is an admin if ``is_staff``, or a member. So each role is stored once, and
    accounts created in any other way have one too.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="viewer"
    )

    def __str__(self) -> str:
        return f"{self.user} is a viewer"


class SetupLink(models.Model):
    """The one-time link that creates the first admin; only a digest of its token is stored."""

    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"set-up link of {self.created_at:%Y-%m-%d %H:%M} UTC"


class Scope(models.TextChoices):
    """The rights of a token on behalf of its member."""

    READ = "read", "Read-only"
    WRITE = "write", "Read and write"


class ApiToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token that a script signs in with; only a digest of it is stored.

    ``token_key`` is its beginning, by which people distinguish tokens; 52 digits follow it.
    ``last_used_at`` lags behind by up to :data:`memorymark_site.accounts.tokens.NOTE_USE_EVERY`.
    """

    name = models.CharField(max_length=100, blank=True)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.WRITE)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.token_key}… of {self.user}"


class Invitation(models.Model):
    """An admin's invitation into the lab; only a digest of its link's key is stored.

    It is open until it is accepted, revoked or expired, and works while ``created_by`` is an
    admin. Renewing it replaces the link, and ``created_by`` by the admin who renews it.
    """

    digest = models.CharField(max_length=64, unique=True)
    email = models.EmailField(blank=True)
    role = models.CharField(max_length=10, choices=Role)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    accepted_by = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    accepted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"invitation {self.pk}{f' of {self.email}' if self.email else ''}"


class SignIn(models.Model):
    """A sign-in with a browser.

    Django's sessions do not say whose they are; this does, so that members can see and end theirs.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sign_ins"
    )
    session_key = models.CharField(max_length=40, unique=True)
    browser = models.CharField(max_length=60)
    started_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.user} with {self.browser}"


class Attempt(models.Model):
    """An attempt at a password or code, or a request for a link; see :mod:`.throttle`."""

    key = models.CharField(max_length=40)
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = (models.Index(fields=("key", "-at")),)

    def __str__(self) -> str:
        return f"attempt at {self.at:%Y-%m-%d %H:%M:%S} UTC"


class KnownNetwork(models.Model):
    """A network that a member has signed in from, by a digest; see :mod:`.networks`."""

    digest = models.CharField(max_length=64, unique=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"network of a sign-in at {self.at:%Y-%m-%d %H:%M} UTC"


class Action(models.TextChoices):
    """The kind of change in an entry of the audit log."""

    MEMBER_INVITED = "member_invited", "Member invited"
    INVITATION_RENEWED = "invitation_renewed", "Invitation renewed"
    INVITATION_REVOKED = "invitation_revoked", "Invitation revoked"
    MEMBER_JOINED = "member_joined", "Member joined"
    ROLE_CHANGED = "role_changed", "Role changed"
    MEMBER_DEACTIVATED = "member_deactivated", "Member deactivated"
    MEMBER_REACTIVATED = "member_reactivated", "Member reactivated"
    RESET_LINK_MADE = "reset_link_made", "Password reset link created"
    PASSWORDS_GUESSED = "passwords_guessed", "Too many wrong passwords"  # no password
    PASSWORD_CHANGED = "password_changed", "Password changed"  # no password
    ADDRESS_CHANGED = "address_changed", "E-mail address changed"
    FACTOR_ADDED = "factor_added", "Second factor added"
    FACTOR_REMOVED = "factor_removed", "Second factor removed"
    RECOVERY_CODES_MADE = "recovery_codes_made", "Recovery codes created"
    RECOVERY_CODE_USED = "recovery_code_used", "Recovery code used"
    SIGN_ON_LINKED = "sign_on_linked", "Single sign-on linked"
    SIGN_ON_UNLINKED = "sign_on_unlinked", "Single sign-on unlinked"
    SESSIONS_ENDED = "sessions_ended", "Other sessions ended"
    TOKEN_MADE = "token_made", "API token created"  # no password
    TOKEN_REVOKED = "token_revoked", "API token revoked"  # no password
    PRICE_SET = "price_set", "Price set"
    GPU_ADDED = "gpu_added", "GPU added"
    GPU_CHANGED = "gpu_changed", "GPU changed"
    GPU_REMOVED = "gpu_removed", "GPU removed"
    LAB_CHANGED = "lab_changed", "Lab settings changed"
    ADOPTED = "adopted", "Recommendation adopted"
    ADOPTION_TAKEN_BACK = "adoption_taken_back", "Adoption undone"
    CHANGE_MENTIONED = "change_mentioned", "Change mentioned"
    ANALYSIS_DELETED = "analysis_deleted", "Analysis deleted"
    TRAINING_DELETED = "training_deleted", "Training run deleted"
    JOBS_DELETED = "jobs_deleted", "Imported jobs deleted"
    NODE_DELETED = "node_deleted", "Node deleted"
    SHARE_LINK_MADE = "share_link_made", "Share link created"
    SHARE_LINK_REVOKED = "share_link_revoked", "Share link revoked"


class NeverChanged(models.QuerySet["AuditEntry"]):
    """Entries can be added and read only."""

    def update(self, **_values: Any) -> NoReturn:
        """Never."""
        raise TypeError("an entry of the audit log is never changed")

    def delete(self) -> NoReturn:
        """Never."""
        raise TypeError("an entry of the audit log is never deleted")


class AuditEntry(models.Model):
    """A change; written by :func:`.audit.note` only.

    ``actor_name`` outlives the account. Both are empty for a command on the server.
    """

    MAX_LENGTH = 300

    at = models.DateTimeField(db_default=Now())
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    action = models.CharField(max_length=30, choices=Action)
    what = models.CharField(max_length=MAX_LENGTH)
    before = models.CharField(max_length=MAX_LENGTH, blank=True)
    after = models.CharField(max_length=MAX_LENGTH, blank=True)

    objects = NeverChanged.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("action", "-id")),
            models.Index(fields=("actor_name", "-id")),
        )
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor_name or 'the server'}: {self.get_action_display()}: {self.what}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store a new entry; a stored one is never changed."""
        if not self._state.adding:
            raise TypeError("an entry of the audit log is never changed")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Never."""
        raise TypeError("an entry of the audit log is never deleted")
