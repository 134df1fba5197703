"""``manage.py removefactors NAME``: for members, even the last admin, who lost their factor."""

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.accounts import members
from memorymark_site.accounts.management import find_member


class Command(BaseCommand):
    """Removes an account's second factors."""

    help = "Remove a member's second factors and recovery codes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the member's user name")

    def handle(self, *, name: str, **_options: object) -> None:
        user = find_member(name)
        if not members.remove_factors(None, user):
            raise CommandError(f"{name} has no second factor")
        self.stdout.write(f"{name} now signs in with the password only.")
