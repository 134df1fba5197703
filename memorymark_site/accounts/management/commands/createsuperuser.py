"""``manage.py createsuperuser``: disabled, since Django's writes no audit entry."""

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Names the command that creates an admin."""

    help = "Use instead: python manage.py addmember NAME --admin"

    def handle(self, **_options: object) -> None:
        """Refuse.

        Raises:
            CommandError: Always.
        """
        raise CommandError("create an admin with: python manage.py addmember NAME --admin")
