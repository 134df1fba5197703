"""A member's browser and a script with a token, at a drill's site."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, HTTPSHandler, Request, build_opener

TIMEOUT_SECONDS = 30.0


class Browser:
    """Keeps cookies; they know the host, not the port.

    Args:
        trusted: Whose certificates it trusts; by default, those the machine trusts.
    """

    def __init__(self, trusted: ssl.SSLContext | None = None) -> None:
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()), HTTPSHandler(context=trusted))

    def page(self, url: str) -> str:
        """The text of a page.

        Raises:
            OSError: It was not answered, or with an error.
        """
        with self._opener.open(url, timeout=TIMEOUT_SECONDS) as response:
            text: str = response.read().decode()
            return text

    def post(self, url: str, form: str, values: Mapping[str, str]) -> tuple[int, str]:
        """Fill in the form at an address; returns the status and the address it led to."""
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.page(form))
        if found is None:
            raise ValueError(f"{form} has no form")
        data = urlencode({**values, "csrfmiddlewaretoken": found[1]}).encode()
        try:
            request = Request(url, data, {"Referer": form})  # noqa: S310  # our own site
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, response.url
        except HTTPError as error:
            return error.code, url

    def sign_in(self, site: str, name: str, password: str) -> int:
        """Sign in with a password; returns the status."""
        login = f"{site}/accounts/login/"
        return self.post(login, login, {"login": name, "password": password})[0]

    def submit(self, site: str) -> int:
        """Submit an analysis with the form; returns its id."""
        form = f"{site}/new/"
        values = {"model": "bert", "gpu": "a10", "precision": "fp32", "current_batch_size": "16"}
        _, url = self.post(form, form, values)
        found = re.fullmatch(rf"{site}/(\d+)/", url)
        if found is None:
            raise ValueError(f"the form led to {url}")
        return int(found[1])

    def api(
        self, url: str, token: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request to the API; returns the status and the answer."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        request = Request(url, data, {**sent, **(headers or {})})  # noqa: S310  # our own site
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, json.load(response)
        except HTTPError as error:
            text = error.read()
            is_json = "json" in error.headers.get("Content-Type", "")
            return error.code, json.loads(text) if is_json else text.decode()
