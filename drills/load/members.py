"""Members and scripts that read a site: a file for locust, which ``python -m drills.load`` runs.

``Reader`` opens pages with a session and their fragments as htmx does; ``Script`` uses the API with
a token. They change nothing. Credentials are in the environment: LOAD_MEMBER, LOAD_PASSWORD and
LOAD_TOKEN.
"""

from __future__ import annotations

import os
import random
import re
from typing import Any

from gevent.lock import Semaphore
from locust import FastHttpUser, between

PAUSE = between(0.5, 1.5)  # seconds between two requests of a member
COMPARED = 6
SEARCH = "model:bert+status:succeeded"
_HTMX = {"HX-Request": "true"}

_signing_in = Semaphore()
_session: list[Any] = []


def _some(user: Any, count: int) -> list[str]:
    return random.sample(user.ids, min(count, len(user.ids)))


def overview(user: Any) -> None:
    """Open the overview, a member's first page."""
    user.client.get("/", name="page: overview")


def history(user: Any) -> None:
    """The first page of all analyses."""
    user.client.get("/history/", name="page: list")


def history_search(user: Any) -> None:
    """A search, loaded as a page, such as from a bookmark."""
    user.client.get(f"/history/?q={SEARCH}", name="page: search")


def fragment_search(user: Any) -> None:
    """The same search, typed into the page."""
    user.client.get(f"/history/?q={SEARCH}", headers=_HTMX, name="fragment: search")


def fragment_now(user: Any) -> None:
    """Load the fragment that keeps the overview up to date."""
    user.client.get("/?new=1&seen=0", headers=_HTMX, name="fragment: running now")


def analysis(user: Any) -> None:
    """One analysis."""
    user.client.get(f"/{_some(user, 1)[0]}/", name="page: one")


def comparison(user: Any) -> None:
    """Six analyses side by side."""
    ids = ",".join(_some(user, COMPARED))
    user.client.get(f"/compare/?ids={ids}", name="page: compare six")


def savings(user: Any) -> None:
    """Open the savings page."""
    user.client.get("/savings/", name="page: savings")


def api_list(user: Any) -> None:
    """The first page of all analyses, as long as the site's."""
    user.client.get("/api/v1/analyses/?page_size=25", name="API: list", headers=user.headers)


def api_search(user: Any) -> None:
    """A search."""
    url = f"/api/v1/analyses/?page_size=25&q={SEARCH}"
    user.client.get(url, name="API: search", headers=user.headers)


def api_one(user: Any) -> None:
    """One analysis with its trials."""
    url = f"/api/v1/analyses/{_some(user, 1)[0]}/"
    user.client.get(url, name="API: one", headers=user.headers)


def api_compare(user: Any) -> None:
    """Six analyses side by side."""
    url = f"/api/v1/compare/?ids={','.join(_some(user, COMPARED))}"
    user.client.get(url, name="API: compare six", headers=user.headers)


class Reader(FastHttpUser):  # type: ignore[misc]  # locust is not installed where types are checked
    """A member with a browser."""

    wait_time = PAUSE
    tasks = (overview, history, history_search, analysis, comparison, savings) + (
        fragment_search,
        fragment_now,
    ) * 2  # a page that stays open asks again and again

    def on_start(self) -> None:
        """Sign in, the first of them for all: hashing a password takes longer than any page."""
        with _signing_in:
            for cookie in _session:
                self.client.cookiejar.set_cookie(cookie)
            if not _session:
                self._sign_in()
                _session.extend(self.client.cookiejar)
        page = self.client.get("/history/", name="(start)").text
        self.ids = sorted(set(re.findall(r'href="/(\d+)/"', page)))
        if not self.ids:
            raise RuntimeError("could not sign in, or there are no analyses to look at")

    def _sign_in(self) -> None:
        login = "/accounts/login/"
        form = self.client.get(login, name="(sign in)").text
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        name, password = os.environ["LOAD_MEMBER"], os.environ["LOAD_PASSWORD"]
        self.client.post(
            login,
            {"login": name, "password": password, "csrfmiddlewaretoken": token and token[1]},
            headers={"Referer": f"{self.host}{login}"},
            name="(sign in)",
        )


class Script(FastHttpUser):  # type: ignore[misc]
    """A member's script."""

    wait_time = PAUSE
    tasks = (api_list, api_search, api_one, api_compare)

    def on_start(self) -> None:
        """See which analyses there are."""
        self.headers = {"Authorization": f"Token {os.environ['LOAD_TOKEN']}"}
        url = "/api/v1/analyses/?page_size=25&status=succeeded"
        found = self.client.get(url, name="(start)", headers=self.headers).json()
        self.ids = [str(one["id"]) for one in found["results"]]
