"""Requests to a lab: JSON over HTTP, tried again where that can help, to no other host.

A request that was lost may have been done, so each that makes something carries an
``Idempotency-Key``, or an id of its own in what it sends: the lab does it once. To change something
twice is to change it once.
"""

from __future__ import annotations

import json
import random
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import (
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from engine.client.errors import LabError, Misconfigured, Unavailable, refusal
from engine.client.settings import Settings

API = "/api/v1"
TRIES = 5
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
"""A lab that asks for more patience than this is left alone; the exception says for how long."""

LARGEST_ANSWER_BYTES = 64 * 2**20

_BUSY = (429, 502, 503, 504)


@dataclass(frozen=True)
class Answer:
    """A good answer.

    Attributes:
        body: Read from JSON.
        version: The ``ETag`` of what it tells; empty where it has none.
    """

    body: Any
    version: str


class Connection:
    """Sends requests as one member.

    Args:
        settings: Whom to ask, and as whom.
        timeout_seconds: For each answer of the network.
        pause: Sleeps; another one for tests.
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
        """What stands at a path of the API; see :meth:`send`."""
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
        """The body of a good answer; see :meth:`exchange`."""
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
    ) -> Answer:
        """A good answer.

        Args:
            method: Of HTTP.
            path: Below ``/api/v1``, with a slash at both ends.
            body: Sent as JSON.
            query: Behind the question mark; what is ``None`` is left out.
            tries: How often at most, if the lab is away or busy.
            timeout_seconds: Another than the connection's.
            version: What is changed has to be of this one still.

        Raises:
            Refused: The lab says no (400 to 499).
            Unavailable: It did not answer, or not well, in all tries.
            Misconfigured: What answers there is no lab.
        """
        request = self._request(method, path, body, query)
        if version is not None:
            request.add_header("If-Match", version)
        seconds = timeout_seconds or self._timeout_seconds
        for number in range(1, tries + 1):
            try:
                return self._ask(request, seconds)
            except _Busy as busy:
                wanted = busy.pause_seconds
                pause = FIRST_PAUSE_SECONDS * 2 ** (number - 1) if wanted is None else wanted
                if number == tries or pause > LONGEST_PAUSE_SECONDS:
                    raise Unavailable(busy.in_words(self.url)) from busy
            # Many clients that were refused together are not to come back together.
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

    def _ask(self, request: Request, timeout_seconds: float) -> Answer:
        """One try."""
        try:
            with self._opener.open(request, timeout=timeout_seconds) as answer:
                return Answer(self._json(_read(answer)), answer.headers.get("ETag", ""))
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
            return Misconfigured(
                {"MEMORYMARK_URL": f"{self.url} sends on to {to}; give the address it is at"}
            )
        if status >= 500:
            return Unavailable(f"The lab at {self.url} failed ({status}); tell who runs it.")
        try:
            body = json.loads(_read(error))
        except (ValueError, OSError, HTTPException, LabError):
            body = None
        return refusal(status, body)

    def _json(self, text: bytes) -> Any:
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            message = f"what answers at {self.url} is no MemoryMark: it sent no JSON"
            raise Misconfigured({"MEMORYMARK_URL": message}) from error

    def _no_certificate(self, error: ssl.SSLError) -> Misconfigured:
        message = f"{self.url} cannot be trusted: {error.reason or error}"
        return Misconfigured({"MEMORYMARK_URL": message})


class _Busy(Exception):
    """A try that may go better later; ``pause_seconds`` is what the lab asks for, if it does."""

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds

    def in_words(self, url: str) -> str:
        """What to tell who waits."""
        when = f"in {self.pause_seconds:,.0f} s" if self.pause_seconds else "later"
        return f"The lab at {url} is not available ({self}); try again {when}."


class _NoRedirects(HTTPRedirectHandler):
    """Follows nothing: the token is for one host, and a redirect may lead to another."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Makes no request, so that the answer itself is the result."""


def _opener(url: str) -> OpenerDirector:
    # Over http a proxy would read the token; over https it sees encrypted bytes only.
    proxies = [ProxyHandler({})] if url.startswith("http:") else []
    return build_opener(_NoRedirects, *proxies)


def _read(answer: IO[bytes]) -> bytes:
    text = answer.read(LARGEST_ANSWER_BYTES + 1)
    if len(text) > LARGEST_ANSWER_BYTES:
        raise LabError(f"The answer is longer than {LARGEST_ANSWER_BYTES:,} bytes.")
    return text


def _pause_wanted(headers: Message) -> float | None:
    """Seconds that ``Retry-After`` asks for, as a number or as a date."""
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isascii() and wanted.isdigit():
        return float(wanted)
    try:
        return max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
    except ValueError:
        return None
