"""``manage.py token NAME``: an API token for a member."""

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.accounts import tokens
from memorymark_site.accounts.management import find_member
from memorymark_site.accounts.models import Scope


class Command(BaseCommand):
    """Creates a token and prints it once."""

    help = "Create an API token for a member and print it; it cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the member's name and what the token is for."""
        parser.add_argument("name", help="the member's user name")
        parser.add_argument("--label", default="", help="what the token is for")
        parser.add_argument("--days", type=int, help="days until it expires; never, if not given")
        parser.add_argument(
            "--scope",
            choices=Scope.values,
            default=Scope.WRITE.value,
            help="what it may do; default %(default)s",
        )

    def handle(
        self, *, name: str, label: str, days: int | None, scope: str, **_options: object
    ) -> None:
        """Print the token alone on a line, for use in a script."""
        user = find_member(name)
        if days is not None and not 0 < days <= 36_500:
            raise CommandError("--days must be from 1 to 36500")
        try:
            _, token = tokens.create(user, label, Scope(scope), days)
        except tokens.TooManyTokens as error:
            most = tokens.MAX_TOKENS
            raise CommandError(f"{name} has {most} tokens; revoke one first") from error
        self.stdout.write(token)
