"""The site's command line: ``memorymark site``, or ``python -m memorymark_site`` in a checkout.

It reads one configuration file, and then sets up, migrates and starts everything, or runs one
command of Django's command line with the same settings.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from django.core.management import execute_from_command_line
from honcho.environ import parse
from honcho.manager import Manager
from honcho.printer import Printer

from memorymark_site.environment import BASE_DIR, IS_CHECKOUT
from memorymark_site.operations import friendly_errors
from memorymark_site.systemd import DEFAULT_CONFIG, add_install_flags, install

PROGRAM = "memorymark site"
GUNICORN = ("gunicorn", "--config", "python:memorymark_site.gunicorn_conf", "memorymark_site.wsgi")
CLUSTER = ("django", "cluster")

_HELP = """\
commands:
  (none)             migrate, collect the static files, start the site and a worker
  serve              only the site
  cluster            only this machine's workers
  install --systemd  units for systemd, a configuration file and a user for them
  help               all the others: addmember, token, backup, restore, drain, check, ...
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The process's own unless given.

    Returns:
        The exit status.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    config = options.config or _default_config()
    if config is not None:
        try:
            os.environ.update(parse(config.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:  # such as a quote that does not end
            parser.error(f"the configuration file cannot be read: {error}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorymark_site.settings")
    match options.words:
        case []:
            return _start()
        case ["serve"]:
            return _become(GUNICORN)
        case ["install", *flags]:
            return install(add_install_flags(f"{PROGRAM} install").parse_args(flags))
        case words:
            _django(*words)
            return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [--config FILE] [COMMAND ...]",
        description="Starts the site, or runs one of its commands.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"variables of docs/settings.md, a line NAME=value for each "
        f"(default: {DEFAULT_CONFIG}, or .env in a checkout, if there is one)",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _default_config() -> Path | None:
    file = BASE_DIR / ".env" if IS_CHECKOUT else DEFAULT_CONFIG
    return file if file.is_file() else None


def _start() -> int:
    """Prepare the database and the static files; then serve and work until stopped."""
    for command in ("migrate", "collectstatic"):
        _django(command, "--noinput", "-v", "0")
    os.environ["PYTHONUNBUFFERED"] = "1"  # what they say is wanted now, the set-up link above all
    manager = Manager(Printer(prefix=False))
    for name, module in (("web", GUNICORN), ("worker", CLUSTER)):
        manager.add_process(name, f"exec {shlex.join(_python(module))}", cwd=str(BASE_DIR))
    manager.loop()
    ended_as_told = {128 + signal.SIGINT, 128 + signal.SIGTERM}
    return 0 if manager.returncode in ended_as_told else int(manager.returncode or 0)


def _django(*words: str) -> None:
    friendly_errors.run(execute_from_command_line, [PROGRAM, *words])


def _become(module: Sequence[str]) -> NoReturn:
    os.chdir(BASE_DIR)
    os.execv(sys.executable, _python(module))  # noqa: S606  # our own Python


def _python(module: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", *module]


if __name__ == "__main__":
    sys.exit(main())
