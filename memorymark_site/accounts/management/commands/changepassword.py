"""``manage.py changepassword NAME``: for members who cannot sign in, if no admin can help."""

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from memorymark_site.accounts import audit, sessions, throttle
from memorymark_site.accounts.management import check_password, typed_password
from memorymark_site.accounts.models import Action


class Command(BaseCommand):
    """Sets a password as Django's command does, ends all sessions, and audits it."""

    help = "Set a member's password and sign out their browsers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the member's name."""
        parser.add_argument("name", help="the member's user name")

    def handle(self, *, name: str, **_options: object) -> None:
        """Ask for it, check it and store it."""
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"there is no member {name!r}")
        password = typed_password(name)
        check_password(password, user)
        user.set_password(password)
        with transaction.atomic():
            user.save(update_fields=["password"])
            sessions.end_all(user)
            audit.note(None, Action.PASSWORD_CHANGED, name)
            throttle.forget(throttle.of_account(name))
        self.stdout.write(f"The password of {name} was changed.")
