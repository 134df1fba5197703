"""``manage.py removefactors NAME``: for who has lost their second factor, the last admin too."""

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.accounts import members


class Command(BaseCommand):
    """Takes the second factors of an account away."""

    help = "Remove a member's second factors and recovery codes: the password alone signs in then."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the member's name."""
        parser.add_argument("name", help="the member's user name")

    def handle(self, *, name: str, **_options: object) -> None:
        """Remove them, and say whether there were any."""
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"there is no member {name!r}")
        if not members.remove_factors(None, user):
            raise CommandError(f"{name} has no second factor")
        self.stdout.write(f"The password alone signs {name} in now.")
