"""``manage.py retention``: deletes now what the workers would delete within the hour."""

from django.core.management.base import BaseCommand, CommandParser

from analyses.jobs.retention import RULES, Rule


class Command(BaseCommand):
    """Prints each rule with its number of days and how many rows it deletes."""

    help = "Remove rows older than the settings allow; without settings, nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="only list what would be removed"
        )

    def handle(self, *, dry_run: bool, **_options: object) -> None:
        for rule in RULES:
            after = f"after {rule.days} days" if rule.days else "off"
            did = (
                f"would remove {rule.due().count():,}" if dry_run else f"removed {_remove(rule):,}"
            )
            self.stdout.write(f"{rule.setting} ({after}): {did} {rule.what}")


def _remove(rule: Rule) -> int:
    removed = 0
    while some := rule.remove_some():
        removed += some
    return removed
