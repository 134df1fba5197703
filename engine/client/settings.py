"""Which lab, and as whom: from arguments, else from the environment.

Variables:
    MEMORYMARK_URL: The site's address, such as ``https://memorymark.lab.example``.
    MEMORYMARK_TOKEN: A token of the site's page *API tokens*.
    MEMORYMARK_ALLOW_HTTP: ``true`` lets the token go over a network unencrypted.
    MEMORYMARK_OUTBOX: Folder for what is yet to be sent (default
        ``~/.local/state/memorymark/outbox``, or in ``XDG_STATE_HOME``).
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from engine.client.errors import Misconfigured
from engine.parsing import shown, yes_or_no

_URL, _TOKEN, _ALLOW_HTTP = "MEMORYMARK_URL", "MEMORYMARK_TOKEN", "MEMORYMARK_ALLOW_HTTP"


@dataclass(frozen=True)
class Settings:
    """A lab and the token for it.

    Attributes:
        url: With no slash at its end.

    Raises:
        Misconfigured: On construction, with a message for each wrong setting.
    """

    url: str
    token: str = field(repr=False)
    allow_http: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/"))
        wrong = {}
        if problem := _problem_of_url(self.url, self.allow_http):
            wrong[_URL] = problem
        if not self.token:
            wrong[_TOKEN] = "give a token of the site's page API tokens"
        elif not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            wrong[_TOKEN] = "this is no token; copy it again from the site"
        if wrong:
            raise Misconfigured(wrong)

    @classmethod
    def of(cls, url: str = "", token: str = "", allow_http: bool | None = None) -> Settings:
        """Those given, the others from the environment.

        Raises:
            Misconfigured: As above.
        """
        wrong: dict[str, str] = {}
        if allow_http is None:
            allow_http = yes_or_no(_ALLOW_HTTP, os.environ.get(_ALLOW_HTTP) or "false", wrong)
        if wrong:
            raise Misconfigured(wrong)
        return cls(
            url=url or os.environ.get(_URL, ""),
            token=(token or os.environ.get(_TOKEN, "")).strip(),
            allow_http=allow_http,
        )


def outbox_folder() -> Path:
    """Where documents wait that could not be sent yet."""
    if named := os.environ.get("MEMORYMARK_OUTBOX"):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "memorymark" / "outbox"


def _problem_of_url(url: str, allow_http: bool) -> str:
    """What is wrong with an address; empty if nothing is."""
    if not url:
        return "give the site's address, such as https://memorymark.lab.example"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isascii() or any(letter.isspace() for letter in url):
        return f"{shown(url)} is no web address; write https://memorymark.lab.example"
    if parts.scheme not in ("http", "https"):
        return f"{shown(url)} does not begin with https://"
    if parts.username is not None or parts.query or parts.fragment:
        return "leave out user, question mark and hash: the token signs in"
    if parts.scheme == "http" and not (allow_http or _is_this_machine(host)):
        return (
            f"{shown(url)} would send the token unencrypted; write https://, or set "
            f"{_ALLOW_HTTP}=true if you trust the network"
        )
    return ""


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
