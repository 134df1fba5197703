"""Fills an empty data folder with a lab's year, and prints how to sign in."""

from __future__ import annotations

import os
import secrets
import sys
from datetime import UTC, date, datetime, timedelta
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command

from demo.filling import EngineGone, ask_for_plans, fill
from demo.inbox import fill_inboxes
from demo.jobs import add_jobs
from demo.node import add_node
from demo.plan import LOGIN, year_until

_REPORT_EVERY_SECONDS = 5.0


def main() -> None:
    """Check the folder, add what is missing, and set a new password.

    Raises:
        SystemExit: The folder may hold a real lab, or the engine does not work.
    """
    last_day = claim_folder()
    call_command("migrate", interactive=False, verbosity=0)
    begun = reported = monotonic()

    def report(progress: str) -> None:
        nonlocal reported
        if monotonic() - reported >= _REPORT_EVERY_SECONDS:
            reported = monotonic()
            _print(f"  {progress}")

    _print("Filling the demo with a year of predictions. You can stop and resume it.")
    try:
        fill(year_until(last_day), report)
        fill_inboxes(last_day)
        ask_for_plans()
        add_node(last_day)
        add_jobs(_account(), last_day)
    except EngineGone as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Stopped. It resumes from here the next time.")
    _print(f"Filled in {monotonic() - begun:.0f} s.")
    _print(f"\n  Sign in as {LOGIN} with the password {new_password()}\n")


def claim_folder() -> date:
    """Mark the data folder as the demo's.

    Returns:
        The last day of the demo's year, fixed per folder.

    Raises:
        SystemExit: The folder may hold a real lab.
    """
    folder, mark = settings.DATA_DIR, settings.DEMO_MARK
    if os.environ.get("DATABASE_URL"):
        sys.exit("DATABASE_URL is set, and the demo never writes to a lab's database. Unset it.")
    if mark.exists():
        try:
            return date.fromisoformat(mark.read_text().strip())
        except ValueError:
            sys.exit(f"{mark} holds no date; remove {folder} to start over.")
    if folder == settings.BASE_DIR / "var" or list(folder.glob("*.sqlite3*")):
        sys.exit(
            f"{folder} is a lab's own. Run make demo, "
            "or set MEMORYMARK_DATA_DIR to an empty folder."
        )
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    mark.write_text(f"{yesterday}\n")
    return yesterday


def new_password() -> str:
    """Set a new password for the demo's account on each start."""
    password = secrets.token_urlsafe(9)
    user = _account()
    user.set_password(password)
    user.save()
    return password


def _account() -> User:
    """The demo's account, which is an admin."""
    user, _ = User.objects.update_or_create(
        username=LOGIN, defaults={"is_staff": True, "is_superuser": True}
    )
    return user


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
