"""``manage.py welcome``: what a person needs to know once the site is up."""

from django.core.management.base import BaseCommand, CommandParser
from django.urls import reverse

from memorymark_site.accounts import invitations


class Command(BaseCommand):
    """Prints the address and, for a new lab, a one-time set-up link."""

    help = "Print the site's address and, while there is no member, a new one-time set-up link."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address the site is reached at."""
        parser.add_argument("--address", default="http://127.0.0.1:8000")

    def handle(self, *, address: str, **_options: object) -> None:
        """Print it."""
        token = invitations.new_setup_link()
        lines = [f"MemoryMark is running: {address}/", "Stop it with Ctrl-C."]
        if token:
            link = address + reverse("accounts:setup", args=[token])
            lines += [
                "",
                "First start: create the lab's admin account with this one-time link:",
                link,
            ]
        self.stdout.write("\n".join(["", *(f"  {line}" for line in lines), ""]))
