"""The site as ``make run`` serves it behind a proxy with TLS, and raw requests to it."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, parse_headers
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from drills.lab import run_python
from drills.node import ROOT
from e2e.running import free_port

NAME = "lab.example"
PASSWORD = "correct horse battery"  # noqa: S105  # of an account of these tests
NAME_FIELD = "login"
"""The sign-in form's name for the name of an account."""

METRICS_TOKEN = "metrics-token-of-these-tests"  # noqa: S105  # as that
LARGE = "large.js"
"""A file larger than what a system keeps for who does not read."""

START_SECONDS = 120.0
TIMEOUT_SECONDS = 1.0
"""Instead of the site's own, which would make these tests slow."""

_SETTINGS = """
from memorymark_site.settings import *
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick, as in all tests
STATIC_ROOT = {static!r}
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
"""
_GUNICORN = """
from memorymark_site.gunicorn_conf import *
from memorymark_site import slow_clients
slow_clients.TIMEOUT_SECONDS = {patience!r}
"""
_FILL = """
import json, django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from memorymark_site.accounts.models import ApiToken
call_command("migrate", verbosity=0)
olga = User.objects.create_user("olga", password={password!r})
print(json.dumps(ApiToken.objects.create(user=olga, name="script")[1]))
"""


def credentials(name: str, password: str) -> dict[str, str]:
    """The fields of the sign-in form."""
    return {NAME_FIELD: name, "password": password}


@dataclass(frozen=True)
class Answer:
    """A response, or the lack of one.

    Attributes:
        status: 0 if the connection was closed without a response.
        seconds: From sending the first byte until the connection was closed.
    """

    status: int
    headers: Message
    body: str
    seconds: float


class Site:
    """gunicorn with the site's own configuration, MEMORYMARK_HTTPS and all.

    Attributes:
        token: An API token of the member olga.
        secret_key: Its signing key.
        folder: Its data, and beside it files that must never be served.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        static = folder / "static"
        static.mkdir()
        (static / "site.css").write_text("body { color: red }")
        (static / LARGE).write_bytes(b" " * 20_000_000)
        (folder / "private.css").write_text("private")
        (folder / "attack_settings.py").write_text(_SETTINGS.format(static=str(static)))
        (folder / "gunicorn.conf.py").write_text(_GUNICORN.format(patience=TIMEOUT_SECONDS))
        self.port = free_port()
        self.secret_key = "key-of-these-tests-" + "k" * 48
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        self._environment = kept | {
            "DJANGO_SETTINGS_MODULE": "attack_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "MEMORYMARK_DATA_DIR": str(folder / "var"),
            "MEMORYMARK_HTTPS": "true",
            "MEMORYMARK_HOSTS": NAME,
            "MEMORYMARK_METRICS_TOKEN": METRICS_TOKEN,
            "SECRET_KEY": self.secret_key,
            "LOG_LEVEL": "DEBUG",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
        }
        filled = run_python(self._environment, "-c", _FILL.format(password=PASSWORD))
        self.token: str = json.loads(filled)
        self._log = (folder / "site.log").open("wb")
        self._process = self._start(self._log)

    def log(self) -> str:
        """Its whole log."""
        return (self.folder / "site.log").read_text(errors="replace")

    def raw(self, *parts: bytes, pause: float = 0.0, patience: float = 120.0) -> Answer:
        """Send raw bytes, with a pause after each part, and read until the server hangs up."""
        begun = monotonic()
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                    sleep(pause)
                while chunk := connection.recv(65536):
                    received += chunk
            except (ConnectionResetError, BrokenPipeError):
                pass  # what arrived until then is the response
        first, _, rest = received.partition(b"\r\n")
        file = io.BytesIO(rest)
        headers = parse_headers(file)
        status = int(first.split(b" ", 2)[1]) if first.startswith(b"HTTP/") else 0
        return Answer(status, headers, file.read().decode(errors="replace"), monotonic() - begun)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request as the proxy would; an early response is read too."""
        begun = monotonic()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        passed_on = {"Host": NAME, "X-Forwarded-Proto": "https", "Connection": "close"}
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.request(method, path, body, passed_on | (headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return Answer(answer.status, answer.headers, text, monotonic() - begun)

    def end(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait(START_SECONDS)
        self._log.close()

    def _start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        config = str(self.folder / "gunicorn.conf.py")
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", config, "memorymark_site.wsgi"],
            cwd=ROOT,
            env=self._environment,
            stdout=log,
            stderr=log,
        )
        try:
            end = monotonic() + START_SECONDS
            while not self._answers():
                if process.poll() is not None or monotonic() > end:
                    raise RuntimeError(self.log())
                sleep(0.1)
        except BaseException:
            process.terminate()
            process.wait(START_SECONDS)
            raise
        return process

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/live").status == 200
        except OSError:
            return False
