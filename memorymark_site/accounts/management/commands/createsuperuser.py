"""``manage.py createsuperuser``: disabled, since Django's writes no audit entry."""

from django.core.management.base import BaseCommand, CommandError

from memorymark_site.environment import MANAGE


class Command(BaseCommand):
    """Names the command that creates an admin."""

    help = f"Use instead: {MANAGE} addmember NAME --admin"

    def handle(self, **_options: object) -> None:
        """Refuse.

        Raises:
            CommandError: Always.
        """
        raise CommandError(f"create an admin with: {MANAGE} addmember NAME --admin")
