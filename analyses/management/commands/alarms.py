"""``manage.py alarms``: what an operator has to know at once."""

import sys
from time import time

from django.core.management.base import BaseCommand, CommandError, CommandParser

from analyses.jobs.alarms import alarms, facts, tell_admins
from memorymark_site.accounts import mail


class Command(BaseCommand):
    """Prints a line for each alarm; exits with status 1 if there is one."""

    help = "Report problems of the database, workers, waiting jobs, backups and disk."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--mail",
            dest="tell",
            action="store_true",
            help="also e-mail the admins, once a day for each alarm",
        )

    def handle(self, *, tell: bool, **_options: object) -> None:
        known = facts()
        found = alarms(known, time())
        for text in found.values():
            self.stdout.write(text)
        if tell:
            self._tell(found, database_responds=known.lab is not None)
        if found:
            sys.exit(1)

    def _tell(self, found: dict[str, str], *, database_responds: bool) -> None:
        if not mail.sends_email():
            raise CommandError("no e-mail is set up: set EMAIL_URL (docs/settings.md)")
        try:
            sent = tell_admins(found, database_responds=database_responds)
        except mail.NotSent as error:
            raise CommandError(f"the mail server refused the e-mails: {error}") from error
        if sent:
            self.stdout.write(f"E-mails sent to admins: {sent}.")
