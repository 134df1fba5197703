"""``manage.py demo``: a lab with a year behind it, in a folder of its own."""

import os
import secrets
from datetime import UTC, date, datetime, timedelta
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from analyses.demo.filling import EngineGone, fill
from analyses.demo.plan import year_until

LOGIN = "demo"
_SAID_EVERY_SECONDS = 5.0


class Command(BaseCommand):
    """Fills the demo's database, and says how to sign in; ``make demo`` then starts the site."""

    help = "Fill an empty data folder (MEMORYMARK_DATA_DIR) with a demo; a lab's own is refused."

    def handle(self, **_options: object) -> None:
        """Check the folder, fill what is missing, and make a new password."""
        last_day = self._claim_folder()
        call_command("migrate", interactive=False, verbosity=0)
        begun = said = monotonic()

        def say(progress: str) -> None:
            nonlocal said
            if monotonic() - said >= _SAID_EVERY_SECONDS:
                said = monotonic()
                self.stdout.write(f"  {progress}")
                self.stdout.flush()

        self.stdout.write("Filling the demo with a year of predictions; it may be stopped ...")
        try:
            fill(year_until(last_day), say)
        except EngineGone as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("stopped; the next time it goes on from here") from None
        self.stdout.write(f"It is filled, after {monotonic() - begun:.0f} s.")
        self.stdout.write(f"\n  Sign in as {LOGIN} with the password {_new_password()}\n")

    def _claim_folder(self) -> date:
        """Mark the folder as a demo's.

        Returns:
            The last day of the demo's year, which stays the same for a folder.

        Raises:
            CommandError: If it may be a lab's own.
        """
        folder, mark = settings.DATA_DIR, settings.DEMO_MARK
        if os.environ.get("DATABASE_URL"):
            raise CommandError(
                "DATABASE_URL names a lab's database, and the demo touches none; unset it first"
            )
        if mark.exists():
            try:
                return date.fromisoformat(mark.read_text().strip())
            except ValueError:
                raise CommandError(f"{mark} holds no date; remove {folder} to start anew") from None
        if folder == settings.BASE_DIR / "var" or list(folder.glob("*.sqlite3*")):
            raise CommandError(
                f"{folder} is a lab's own; use make demo, or name an empty folder with "
                "MEMORYMARK_DATA_DIR"
            )
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        mark.write_text(f"{yesterday}\n")
        return yesterday


def _new_password() -> str:
    """Of the account that one signs in with; each start makes another."""
    password = secrets.token_urlsafe(9)
    user, _ = User.objects.get_or_create(
        username=LOGIN, defaults={"is_staff": True, "is_superuser": True}
    )
    user.set_password(password)
    user.save()
    return password
