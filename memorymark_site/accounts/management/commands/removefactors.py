"""``manage.py removefactors NAME``: for members, even the last admin, who lost their factor."""

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.accounts import members


class Command(BaseCommand):
    """Removes an account's second factors."""

    help = "Remove a member's second factors and recovery codes."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the member's name."""
        parser.add_argument("name", help="the member's user name")

    def handle(self, *, name: str, **_options: object) -> None:
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"there is no member {name!r}")
        if not members.remove_factors(None, user):
            raise CommandError(f"{name} has no second factor")
        self.stdout.write(f"{name} now signs in with the password only.")
