"""``manage.py changepassword NAME``: for members who cannot sign in, if no admin can help."""

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from memorymark_site.accounts import audit, sessions, throttle
from memorymark_site.accounts.management import check_password, find_member, typed_password
from memorymark_site.accounts.models import Action


class Command(BaseCommand):
    """Sets a password as Django's command does, ends all sessions, and audits it."""

    help = "Set a member's password and sign out their browsers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the member's user name")

    def handle(self, *, name: str, **_options: object) -> None:
        """Ask for it, check it and store it."""
        user = find_member(name)
        password = typed_password(name)
        check_password(password, user)
        user.set_password(password)
        with transaction.atomic():
            user.save(update_fields=["password"])
            sessions.end_all(user)
            audit.note(None, Action.PASSWORD_CHANGED, name)
            throttle.forget(name)
        self.stdout.write(f"The password of {name} was changed.")
