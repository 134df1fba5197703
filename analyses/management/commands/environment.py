"""``manage.py environment``: the versions of transformers and torch that this node offers."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from analyses.jobs import environments
from engine.core.errors import EngineError, InvalidInput
from engine.versions import environments as engine_environments
from engine.versions import software

FLAGS = ("transformers", "torch", "peft")


class Command(BaseCommand):
    """The node announces a new environment with its next heartbeat; nothing has to restart."""

    help = "Offer other versions of transformers or torch on this node, in environments of pip."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        add = actions.add_parser("add", help="make an environment")
        for package in FLAGS:
            add.add_argument(f"--{package}", metavar="VERSION", help=f"of {package}")
        remove = actions.add_parser("remove", help="delete an environment")
        remove.add_argument("name", help="as `list` shows it")
        actions.add_parser("list", help="show what this node offers")

    def handle(self, *, action: str, **options: str) -> None:
        """Carry out one action."""
        if action == "add":
            self._add({name: options[name] for name in FLAGS if options.get(name)})
        elif action == "remove":
            if not engine_environments.remove(environments.folder(), options["name"]):
                raise CommandError(f"there is no environment {options['name']} on this node")
            self.stdout.write(f"Removed {options['name']}.")
        else:
            self.stdout.write(f"own: {software.format_versions(software.installed())}")
            for one in environments.here():
                self.stdout.write(f"{one.name}: {software.format_versions(one.versions)}")

    def _add(self, wanted: dict[str, str]) -> None:
        if not wanted:
            raise CommandError("enter at least one version, such as --transformers 4.51.3")
        try:
            wanted = software.parse(software.as_text(wanted))
            made = engine_environments.make(environments.folder(), wanted)
        except InvalidInput as error:
            raise CommandError("; ".join(error.fields.values())) from error
        except EngineError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Made {made.name}: {software.format_versions(made.versions)}.")
