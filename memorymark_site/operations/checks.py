"""Django checks of the settings, each with a remedy.

Values that make no sense are refused earlier, by :mod:`memorymark_site.environment`. What matters
only once others can reach the site is reported by ``manage.py check --deploy``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

MIN_TOKEN_LENGTH = 16


@register(Tags.compatibility)
def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Problems that keep the site or its workers from working."""
    return [*_files(), *_engine_user(), *_reachable(), *_email()]


@register(Tags.security, deploy=True)
def check_deployment(**_kwargs: Any) -> list[CheckMessage]:
    """Problems where others can reach the site, or a lab has several machines."""
    return [*_keys(), *_links(), *_single_sign_on(), *_others_on_this_machine()]


def _files() -> Iterator[CheckMessage]:
    command = settings.ENGINE_COMMAND[0]
    if shutil.which(command) is None:
        yield Error(
            f"the engine cannot be started: there is no program {command}",
            hint="run make install, and start MemoryMark with the Python in .venv",
            id="memorymark.E001",
        )
    if not os.access(settings.DATA_DIR, os.W_OK | os.X_OK):
        yield Error(
            f"the data folder {settings.DATA_DIR} cannot be written",
            hint="make the user that runs the site its owner, or set another: MEMORYMARK_DATA_DIR",
            id="memorymark.E002",
        )


def _engine_user() -> Iterator[CheckMessage]:
    name = settings.ENGINE_USER
    if not name:
        return
    try:
        pwd.getpwnam(name)
    except KeyError:
        yield Error(
            f"the engine cannot be started: this machine has no account {name}",
            hint=f"useradd --system --create-home {name}, or leave MEMORYMARK_ENGINE_USER out",
            id="memorymark.E011",
        )
        return
    if os.geteuid() != 0:
        yield Error(
            f"the engine cannot be started as {name}: only root may start it as someone else",
            hint="run the worker as root, or leave MEMORYMARK_ENGINE_USER out",
            id="memorymark.E012",
        )


def _reachable() -> Iterator[CheckMessage]:
    if settings.SESSION_COOKIE_SECURE and not settings.NAMED_HOSTS:
        yield Error(
            "MEMORYMARK_HTTPS is set, but the site answers to no name but this machine's",
            hint="set the name that members use: MEMORYMARK_HOSTS=memorymark.lab.example",
            id="memorymark.E003",
        )


def _email() -> Iterator[CheckMessage]:
    url, sender = settings.ENVIRONMENT.email_url, settings.ENVIRONMENT.email_from
    if url and not sender:
        yield Warning(
            "EMAIL_URL is set, but DEFAULT_FROM_EMAIL is not: mail servers refuse the sender "
            f"{settings.DEFAULT_FROM_EMAIL}",
            hint="set DEFAULT_FROM_EMAIL=memorymark@lab.example, here and for each worker",
            id="memorymark.W004",
        )
    if sender and not url:
        yield Warning(
            "DEFAULT_FROM_EMAIL is set, but EMAIL_URL is not: no e-mail is sent",
            hint="set EMAIL_URL=smtp+tls://user:password@mail.lab.example:587",
            id="memorymark.W005",
        )


def _keys() -> Iterator[CheckMessage]:
    if connection.vendor == "postgresql" and not settings.ENVIRONMENT.secret_key:
        yield Warning(
            "the database is PostgreSQL, but SECRET_KEY is not set: workers on other machines "
            "create their own and cannot read the queue",
            hint="set the same SECRET_KEY on every machine",
            id="memorymark.W006",
        )
    if settings.METRICS_TOKEN and len(settings.METRICS_TOKEN) < MIN_TOKEN_LENGTH:
        yield Warning(
            f"MEMORYMARK_METRICS_TOKEN is easy to guess; it needs {MIN_TOKEN_LENGTH} characters",
            hint="create one: python -c 'import secrets; print(secrets.token_urlsafe(24))'",
            id="memorymark.W007",
        )


def _links() -> Iterator[CheckMessage]:
    if settings.NAMED_HOSTS and settings.PUBLIC_URL.startswith("http://127.0.0.1"):
        yield Warning(
            f"links in e-mails and webhooks begin with {settings.PUBLIC_URL}, where only this "
            "machine finds the site",
            hint=f"set MEMORYMARK_URL=https://{settings.NAMED_HOSTS[0]}, here and for each worker",
            id="memorymark.W008",
        )


def _single_sign_on() -> Iterator[CheckMessage]:
    if settings.OIDC and not settings.SESSION_COOKIE_SECURE:
        yield Warning(
            f"members sign in with {settings.OIDC.issuer}, which sends them back over HTTP: "
            "anyone who listens on the network can sign in as them",
            hint="serve the site over HTTPS (docs/operations.md) and set MEMORYMARK_HTTPS=true",
            id="memorymark.W009",
        )


def _others_on_this_machine() -> Iterator[CheckMessage]:
    if settings.DATA_DIR.stat().st_mode & stat.S_IXOTH:
        yield Warning(
            f"every account of this machine can enter the data folder {settings.DATA_DIR}: the "
            "database there holds sessions and the secrets of webhooks",
            hint=f"chmod o= {settings.DATA_DIR}",
            id="memorymark.W010",
        )
