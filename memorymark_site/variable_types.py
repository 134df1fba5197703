"""Types of environment variables; each checks a value and describes what it takes."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from pydantic import AfterValidator, BeforeValidator, Field

_MAX_ISSUER_LENGTH = 200
"""Characters; the column that names the provider of a linked account has no room for more."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_safe(url: object) -> bool:
    """Whether what is sent there stays secret on its way: over HTTPS, or on this machine."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    )


def _database(url: str) -> str:
    try:
        if urlsplit(url).scheme not in ("sqlite", "postgres", "postgresql"):
            raise ValueError
        environ.Env.db_url_config(url)
    except ValueError:
        raise ValueError("postgres://user:password@host/name, or nothing for SQLite") from None
    return url


def _mail_server(url: str) -> str:
    try:
        environ.Env.email_url_config(url)
    except (ImproperlyConfigured, ValueError):
        raise ValueError("smtp+tls://user:password@mail.lab.example:587") from None
    return url


def _web_address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("a web address such as https://memorymark.lab.example")
    return url.rstrip("/")


def _issuer(url: str) -> str:
    if not is_safe(url) or len(url) > _MAX_ISSUER_LENGTH:
        raise ValueError(
            "the provider's address, such as https://login.lab.example/realms/lab, of at most "
            f"{_MAX_ISSUER_LENGTH} characters"
        )
    return url


def _switch(value: object) -> object:
    """Words that the engine, which reads ``MEMORYMARK_HUB`` itself, understands in the same way."""
    if not isinstance(value, str):
        return value
    if value.lower() not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ValueError("true or false")
    return value.lower()


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


_lower = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
_upper = BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value)

Switch = Annotated[bool, BeforeValidator(_switch)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_names)]
Days = Annotated[int, Field(ge=0, le=36_500)]
Seconds = Annotated[int, Field(ge=1, le=7 * 24 * 3600)]
Issuer = Annotated[str, AfterValidator(_issuer)]
WebAddress = Annotated[str, AfterValidator(_web_address)]
DatabaseUrl = Annotated[str, AfterValidator(_database)]
MailUrl = Annotated[str, AfterValidator(_mail_server)]
NewMember = Annotated[Literal["nobody", "viewer", "member"], _lower]
FactorRule = Annotated[Literal["none", "admins", "all"], _lower]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], _upper]
LogFormat = Annotated[Literal["lines", "json"], _lower]
