"""``manage.py retention``: remove now what the workers would remove within the hour."""

from django.core.management.base import BaseCommand, CommandParser

from analyses.retention import RULES, Rule


class Command(BaseCommand):
    """Says of each rule after how many days it holds, and what goes by it."""

    help = "Remove what is older than the settings say; nothing, where they say nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take whether only to tell."""
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(self, *, dry_run: bool, **_options: object) -> None:
        """Tell, and remove."""
        for rule in RULES:
            after = f"after {rule.days} days" if rule.days else "off"
            did = self._would(rule) if dry_run else self._remove(rule)
            self.stdout.write(f"{rule.setting} ({after}): {did} {rule.what}")

    def _would(self, rule: Rule) -> str:
        return f"would remove {rule.due().count():,}"

    def _remove(self, rule: Rule) -> str:
        removed = 0
        while some := rule.remove_some():
            removed += some
        return f"removed {removed:,}"
