"""Requests to a lab: JSON over HTTP, retried where that can help, to no other host.

A lost request may still have been carried out. So each request that creates something carries an
``Idempotency-Key``, or an id of its own in the body, and the lab does it once. Changing something
twice has the same effect as changing it once.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from ..core.parsing import shown, yes_or_no
from ..core.process import state_folder
from .errors import LabError, Misconfigured, Unavailable, refusal

API = "/api/v1"
TRIES = 5
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
"""If the lab asks for a longer pause, we give up; the exception says how long it is."""

MAX_ANSWER_BYTES = 64 * 2**20

_BUSY = (429, 502, 503, 504)

_URL, _TOKEN, _ALLOW_HTTP = "MEMORYMARK_URL", "MEMORYMARK_TOKEN", "MEMORYMARK_ALLOW_HTTP"


@dataclass(frozen=True)
class Settings:
    """A lab's address, and a token for it.

    Attributes:
        url: Without a slash at the end.

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
            wrong[_TOKEN] = "set it to a token from the site's API tokens page"
        elif not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            wrong[_TOKEN] = "this is not a token; copy it again from the site"
        if wrong:
            raise Misconfigured(wrong)

    @classmethod
    def of(cls, url: str = "", token: str = "", allow_http: bool | None = None) -> Settings:
        """Settings as given, otherwise from the environment.

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
    """The folder of documents that could not be sent yet."""
    if named := os.environ.get("MEMORYMARK_OUTBOX"):
        return Path(named)
    return state_folder() / "outbox"


def _problem_of_url(url: str, allow_http: bool) -> str:
    """Problem with an address, or an empty string."""
    if not url:
        return "set it to the site's address, such as https://memorymark.lab.example"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isascii() or any(letter.isspace() for letter in url):
        return f"{shown(url)} is not a web address; write https://memorymark.lab.example"
    if parts.scheme not in ("http", "https"):
        return f"{shown(url)} does not start with https://"
    if parts.username is not None or parts.query or parts.fragment:
        return "leave out user name, query and fragment; the token signs in"
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


@dataclass(frozen=True)
class Response:
    """A successful answer.

    Attributes:
        body: Parsed JSON.
        version: The ``ETag``; empty without one.
    """

    body: Any
    version: str


class Connection:
    """Sends requests as one member.

    Args:
        settings: Address and token.
        timeout_seconds: For each wait on the network.
        pause: Sleeps; replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        timeout_seconds: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = settings.url
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._pause = pause
        self._opener = _opener(settings.url)

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        return self.send("GET", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        tries: int = TRIES,
        timeout_seconds: float | None = None,
    ) -> Any:
        """The body of a successful answer; see :meth:`exchange`."""
        return self.exchange(method, path, body, query, tries, timeout_seconds).body

    def exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        tries: int = TRIES,
        timeout_seconds: float | None = None,
        version: str | None = None,
    ) -> Response:
        """Send a request and return the successful answer.

        Args:
            method: The HTTP method.
            path: Below ``/api/v1``, with a slash at both ends.
            body: Sent as JSON.
            query: Query parameters; ``None`` values are left out.
            tries: Number of tries if the lab is down or busy.
            timeout_seconds: Overrides the connection's.
            version: The version that a change is based on (``If-Match``).

        Raises:
            Refused: The lab refused the request (400 to 499).
            Unavailable: No try got a usable answer.
            Misconfigured: There is no MemoryMark at the address.
        """
        request = self._request(method, path, body, query)
        if version is not None:
            request.add_header("If-Match", version)
        seconds = timeout_seconds or self._timeout_seconds
        for number in range(1, tries + 1):
            try:
                return self._try_once(request, seconds)
            except _Busy as busy:
                wanted = busy.pause_seconds
                pause = FIRST_PAUSE_SECONDS * 2 ** (number - 1) if wanted is None else wanted
                if number == tries or pause > MAX_PAUSE_SECONDS:
                    raise Unavailable(busy.message(self.url)) from busy
            # Spread out, so that clients refused together do not all come back together.
            self._pause(pause * random.uniform(1.0, 1.5))  # noqa: S311  # no secret
        raise AssertionError("the last try returns or raises")

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        query: Mapping[str, object] | None,
    ) -> Request:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        address = f"{self.url}{API}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        headers = {
            "Authorization": f"Token {self._settings.token}",
            "Accept": "application/json, application/problem+json",
            "User-Agent": "memorymark-client",
        }
        data = None
        if method in ("POST", "PATCH"):
            data = json.dumps(body or {}, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        if method == "POST":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        return Request(address, data, headers, method=method)  # noqa: S310  # settings know schemes

    def _try_once(self, request: Request, timeout_seconds: float) -> Response:
        try:
            with self._opener.open(request, timeout=timeout_seconds) as answer:
                return Response(self._json(_read(answer)), answer.headers.get("ETag", ""))
        except HTTPError as error:
            with error:
                raise self._failure(error) from error
        except ssl.SSLError as error:
            raise self._no_certificate(error) from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise self._no_certificate(error.reason) from error
            raise _Busy(str(error.reason)) from error
        except (OSError, HTTPException) as error:
            raise _Busy(str(error) or type(error).__name__) from error

    def _failure(self, error: HTTPError) -> Exception:
        status = error.code
        if status in _BUSY:
            return _Busy(f"it answered {status}", _pause_wanted(error.headers))
        if 300 <= status < 400:
            to = error.headers.get("Location", "elsewhere")
            return Misconfigured({_URL: f"{self.url} redirects to {to}; use that address instead"})
        if status >= 500:
            return Unavailable(f"The lab at {self.url} failed ({status}); tell its operator.")
        try:
            body = json.loads(_read(error))
        except (ValueError, OSError, HTTPException, LabError):
            body = None
        return refusal(status, body)

    def _json(self, text: bytes) -> Any:
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            message = f"{self.url} is not a MemoryMark site: it did not answer with JSON"
            raise Misconfigured({_URL: message}) from error

    def _no_certificate(self, error: ssl.SSLError) -> Misconfigured:
        message = f"{self.url} cannot be trusted: {error.reason or error}"
        return Misconfigured({_URL: message})


class _Busy(Exception):
    """A failed try that may succeed later, after ``pause_seconds`` if the lab asks for a pause."""

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds

    def message(self, url: str) -> str:
        when = f"in {self.pause_seconds:,.0f} s" if self.pause_seconds else "later"
        return f"The lab at {url} is not available ({self}); try again {when}."


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, which could take the token to another host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Returns no new request, so that the redirect itself is the result."""


def _opener(url: str) -> OpenerDirector:
    # Over http a proxy could read the token; over https it sees only encrypted bytes.
    proxies = [ProxyHandler({})] if url.startswith("http:") else []
    return build_opener(_NoRedirects, *proxies)


def _read(answer: IO[bytes]) -> bytes:
    text = answer.read(MAX_ANSWER_BYTES + 1)
    if len(text) > MAX_ANSWER_BYTES:
        raise LabError(f"The answer is longer than {MAX_ANSWER_BYTES:,} bytes.")
    return text


def _pause_wanted(headers: Message) -> float | None:
    """Seconds from ``Retry-After``, which is a number or a date."""
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isascii() and wanted.isdigit():
        return float(wanted)
    try:
        return max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
    except ValueError:
        return None
