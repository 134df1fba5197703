"""``manage.py backup FILE``: all rows of the lab in one file, while it works."""

from pathlib import Path
from time import monotonic

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memorymark_site.operations.archive import BadArchive
from memorymark_site.operations.backup import CannotBackUp, back_up
from memorymark_site.operations.site_metrics import note_backup


class Command(BaseCommand):
    """Writes a file without stopping or blocking anything."""

    help = "Back up the lab into a new file: members, tokens' digests, analyses, settings."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file."""
        parser.add_argument("file", type=Path, help="a new file; only its owner can read it")

    def handle(self, *, file: Path, **_options: object) -> None:
        begun = monotonic()
        try:
            manifest = back_up(file)
        except (CannotBackUp, BadArchive) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"the backup cannot be written: {error}") from error
        note_backup()
        self.stdout.write(
            f"{file}: {manifest.rows:,} rows, {manifest.rows_of('analyses.analysis'):,} analyses "
            f"of {manifest.rows_of('auth.user'):,} members, {file.stat().st_size / 2**20:.1f} MiB, "
            f"written and read back in {monotonic() - begun:.1f} s."
        )
