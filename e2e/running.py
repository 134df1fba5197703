"""A real site, started with make, with its own data folder."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 900.0
"""The demo is filled first: a minute or two, on a busy machine more."""

STOP_SECONDS = 30.0
PRINTED_SECONDS = 120.0
"""Timeout for the first worker's output, once another answers already."""

_ADD_MEMBERS = """
import sys
import django
django.setup()
from importlib import import_module
from allauth.account.internal.flows.login import record_authentication
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpRequest
for words in sys.argv[1:]:
    name, *flags = words.split()
    call_command("addmember", name, *flags, "--generate")
    request, user = HttpRequest(), User.objects.get(username=name)
    request.session = import_module(settings.SESSION_ENGINE).SessionStore()
    login(request, user, settings.AUTHENTICATION_BACKENDS[0])
    record_authentication(request, user, method="password", username=name)
    request.session.save()
    print("Session:", request.session.session_key)
"""
"""Adds members, and signs each in as the form does."""

_SERVE = "serve"
_START_SERVING = """
for words in migrate collectstatic; do {python} -m memorymark_site $words --noinput -v 0; done
exec {python} -m memorymark_site serve
"""
"""Starts a site on a machine whose worker is elsewhere."""

_TIED = """
exec 3<&0 </dev/null
{ cat; trap '' TERM; kill -TERM -$$; sleep 30; kill -KILL -$$; } <&3 &
exec 3<&-
exec "$@"
"""
"""Runs a command, and ends its process group as soon as nobody can write to its input any more."""

_SETTINGS = """
from memorymark_site.settings import *
STATIC_ROOT = {static!r}
ROOT_URLCONF = "memorymark_site.tests.faults"
"""


@dataclass(frozen=True)
class Account:
    """A member's account.

    Attributes:
        name: Its name.
        password: Its password.
        session: The key of an open session, to be signed in without the form; empty if there is
            none.
    """

    name: str
    password: str
    session: str = ""


class NotStarted(Exception):
    """The site did not come up; the message is its output."""


class Site:
    """A running site: ``make run``, ``make demo``, or only what serves pages.

    Attributes:
        url: Its address, without a trailing slash.
    """

    def __init__(
        self, folder: Path, target: str = "run", settings: Mapping[str, str] | None = None
    ) -> None:
        """Start the site and wait until it is healthy.

        Args:
            folder: An empty folder for its data and its output.
            target: Make target: ``run``, or ``demo`` for a site with a year of history; or
                ``serve`` for one that analyzes nothing, so that no engine has to load torch.
            settings: Environment variables to change from their defaults.

        Raises:
            NotStarted: It exited, or was not healthy in time.
        """
        port = free_port()
        self._health = "/ready" if target == _SERVE else "/health"
        self.url = f"http://127.0.0.1:{port}"
        self._data = folder / "data"
        self._settings = dict(settings or {})
        self._output = folder / "output.txt"
        # Sites that start at the same time must not overwrite each other's static files.
        self._settings |= {
            "DJANGO_SETTINGS_MODULE": "e2e_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }
        text = _SETTINGS.format(static=str(folder / "static"))
        (folder / "e2e_settings.py").write_text(text)
        self._process = tied(self._command(target, port), self._environment(), self._output)
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def _command(self, target: str, port: int) -> list[str]:
        if target != _SERVE:
            return ["make", target, f"PORT={port}", f"DEMO_DATA_DIR={self._data}"]
        self._settings |= {"PORT": str(port), "HOST": "127.0.0.1"}
        return ["/bin/sh", "-ec", _START_SERVING.format(python=shlex.quote(sys.executable))]

    @property
    def setup_link(self) -> str:
        """The one-time link that a new lab prints on its first start."""
        return self._said(rf"{re.escape(self.url)}/\S*setup\S*")

    @property
    def demo_password(self) -> str:
        """The password of the demo's account ``demo``."""
        return self._said(r"(?<=with the password )\S+")

    def add_member(self, name: str, *, admin: bool = False) -> Account:
        """Create an account with an open session."""
        return self.add_members([f"{name} --admin" if admin else name])[0]

    def add_members(self, members: Sequence[str]) -> list[Account]:
        """Create accounts, each with an open session, in one process, whose start takes seconds.

        Args:
            members: Arguments of ``addmember``: a name, and perhaps ``--admin``.
        """
        done = subprocess.run(
            [sys.executable, "-c", _ADD_MEMBERS, *members],
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        secrets_of_each = zip(
            re.findall(r"Password: (\S+)", done.stdout),
            re.findall(r"Session: (\S+)", done.stdout),
            strict=True,
        )
        names = (words.split()[0] for words in members)
        return [Account(name, *each) for name, each in zip(names, secrets_of_each, strict=True)]

    def end(self) -> None:
        """Stop the site and all its processes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_SECONDS)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
            return

    def _environment(self) -> dict[str, str]:
        # Not as a sub-make of the make that may have started this, nor on an existing database.
        mine = ("MAKE", "MFLAGS", "DATABASE_URL", "MEMORYMARK_", "DJANGO_", "PORT", "HOST")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        return kept | self._settings | {"MEMORYMARK_DATA_DIR": str(self._data)}

    def _wait(self) -> None:
        end = monotonic() + START_SECONDS
        while not self._is_healthy():
            if self._process.poll() is not None or monotonic() > end:
                raise NotStarted(self._output.read_text(errors="replace"))
            sleep(0.2)

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}{self._health}", timeout=30) as answer:  # noqa: S310  # an address of this test
                return bool(answer.status == 200)
        except (URLError, HTTPException, ConnectionError, TimeoutError):
            return False

    def _said(self, pattern: str) -> str:
        """The matching part of its output; the first ready worker may print it a moment later."""
        end = monotonic() + PRINTED_SECONDS
        while not (found := re.search(pattern, self._output.read_text(errors="replace"))):
            if monotonic() > end:
                raise NotStarted(self._output.read_text(errors="replace"))
            sleep(0.1)
        return found.group()


def tied(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start a command in a process group that ends with this process, whatever ends it.

    A signal may end a test run before its fixtures can stop what they have started. The system then
    closes the pipe to the command, which is what it notices.

    Args:
        command: Program and arguments.
        environment: All of its environment variables.
        output: The file for all that it prints.
    """
    with output.open("wb") as file:
        return subprocess.Popen(
            ["/bin/sh", "-c", _TIED, "sh", *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def free_port() -> int:
    """A free port for a program that will listen on it later.

    It is below the range that systems hand out to connections (from 32768 on Linux, 49152 on
    macOS), where another program might take it in the meantime.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
