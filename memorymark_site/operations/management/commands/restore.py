"""``manage.py restore FILE``: a backup into an empty instance, on SQLite or PostgreSQL."""

from pathlib import Path
from time import monotonic

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.environment import START_SITE
from memorymark_site.operations.archive import Archive, BadArchive
from memorymark_site.operations.restore import CannotRestore, Restored, admins, restore

_NOT_SIGNED = (
    "it is not signed with this SECRET_KEY, so anyone who had the file may have become an admin in "
    "it. Set the SECRET_KEY that it was made with, or add --unsigned if you know its source"
)
_MAX_NAMED = 20

REPLACE = "replace"
"""The word that confirms replacing a lab's rows."""


class Command(BaseCommand):
    """Checks the whole file first, then restores all of it or nothing."""

    help = "Restore a backup into an empty instance; stop the site and its workers first."
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--check", action="store_true", help="only check the file")
        parser.add_argument(
            "--unsigned",
            action="store_true",
            help="restore it though this SECRET_KEY has not signed it, as after a new key",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="replace the existing lab, after asking; its rows are deleted",
        )

    def handle(
        self, *, file: Path, check: bool, unsigned: bool, force: bool, **_options: object
    ) -> None:
        begun = monotonic()
        try:
            with Archive(file) as archive:
                archive.check()
                self._describe(archive)
                if check:
                    self.stdout.write("The file is whole; nothing was restored.")
                    return
                if not (archive.is_signed or unsigned):
                    raise CannotRestore(_NOT_SIGNED)
                if force:
                    self._ask()
                done = restore(archive, replace=force)
        except (BadArchive, CannotRestore) as error:
            raise CommandError(f"{error}. Nothing was restored") from error
        self._report(done)
        self.stdout.write(f"Restored in {monotonic() - begun:.1f} s. Start it with: {START_SITE}")

    def _describe(self, archive: Archive) -> None:
        manifest = archive.manifest
        self.stdout.write(
            f"The backup of {manifest.made_at} ({manifest.database}) has {manifest.rows:,} rows: "
            f"{manifest.rows_of('analyses.analysis'):,} analyses of "
            f"{manifest.rows_of('auth.user'):,} members."
        )
        names = admins(archive)
        shown = [name if name.isprintable() else ascii(name) for name in names[:_MAX_NAMED]]
        more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        self.stdout.write(f"Its admins are {', '.join(shown)}{more}." if names else "No admins.")
        if not archive.is_signed:
            self.stdout.write("It is not signed with this SECRET_KEY: anyone may have changed it.")

    def _ask(self) -> None:
        self.stdout.write("Every row in this database, if any, will be deleted.")
        if input(f"Type {REPLACE!r} to continue: ").strip() != REPLACE:
            raise CommandError("nothing was changed")

    def _report(self, done: Restored) -> None:
        for name, count in done.replaced.items():
            self.stdout.write(f"Replaced {count:,} rows of {name}.")
        for line in done.notes:
            self.stdout.write(line)
        self.stdout.write("Members have to sign in again. API tokens and share links still work.")
