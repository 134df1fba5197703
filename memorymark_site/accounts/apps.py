"""The app's place in Django."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Members of the lab."""

    name = "memorymark_site.accounts"
    label = "accounts"

    def ready(self) -> None:
        """Record each sign-in."""
        from django.contrib.auth.signals import user_logged_in

        from memorymark_site.accounts import sessions

        user_logged_in.connect(sessions.note_sign_in, dispatch_uid="note_sign_in")
