"""``manage.py createsuperuser``: Django's, which leaves no entry in the audit log, is not here."""

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Says which command makes an admin."""

    help = "Not here: python manage.py addmember NAME --admin"

    def handle(self, **_options: object) -> None:
        """Refuse.

        Raises:
            CommandError: Always.
        """
        raise CommandError("an admin is made by: python manage.py addmember NAME --admin")
