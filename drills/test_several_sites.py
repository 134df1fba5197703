"""Two machines serve one lab: what one of them knows holds on the other, also when one dies."""

from __future__ import annotations

import json
import re
import signal
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

import psutil
import pytest

from drills.conftest import StartLab

pytestmark = pytest.mark.slow

KEY = "the same on both machines, as the guide says"
PASSWORD = "a compiler of 1952"  # noqa: S105  # of this drill alone
UNITS = 30


def test_two_sites_are_one_lab_and_one_may_die(
    start_lab: StartLab, postgres_url: str, tmp_path: Path
) -> None:
    lab = start_lab(database_url=postgres_url)
    lab.call("inside_clients.make_member", "ada", PASSWORD)
    (token,) = lab.call("inside_clients.make_tokens", 1, 1)
    first, second = (
        lab.start_site(
            SECRET_KEY=KEY,
            MEMORYMARK_DATA_DIR=str(tmp_path / machine),  # each has its own disk
            MEMORYMARK_API_UNITS=str(UNITS),
        )
        for machine in ("first", "second")
    )

    # Who signed in at one is known to the other, and so are wrong passwords.
    browser = _browser()
    assert _sign_in(browser, first, PASSWORD) == 200
    assert "Sign out" in _page(browser, f"{second}/history/")
    stranger = _browser()
    refused = [
        _sign_in(stranger, site, f"wrong {n}") for n in range(12) for site in (first, second)
    ]
    assert refused.index(429) <= 11

    # A member's units are one budget.
    answers = [_status(site, token) for _ in range(UNITS) for site in (first, second)]
    assert UNITS <= answers.count(200) < UNITS + 20  # some seconds give some units back
    assert 429 in answers[:-1]

    # One dies with a request in hand; the other serves on, and has what the dead one stored.
    pk = _submit(browser, first)
    _kill(lab.sites[0].pid)
    with pytest.raises(OSError):  # noqa: PT011  # refused, or reset
        _page(browser, f"{first}/history/")
    assert f"/{pk}/" in _page(browser, f"{second}/history/")
    assert _submit(browser, second) > pk


def _browser() -> OpenerDirector:
    return build_opener(HTTPCookieProcessor(CookieJar()))  # cookies know the host, not the port


def _page(browser: OpenerDirector, url: str) -> str:
    with browser.open(url, timeout=30) as response:
        text: str = response.read().decode()
        return text


def _post(browser: OpenerDirector, url: str, form: str, values: dict[str, str]) -> tuple[int, str]:
    """Fill in the form at an address; returns the status and the address it led to."""
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', _page(browser, form))
    assert found
    data = urlencode(values | {"csrfmiddlewaretoken": found[1]}).encode()
    try:
        request = Request(url, data, {"Referer": form})  # noqa: S310  # our own site
        with browser.open(request, timeout=30) as response:
            return response.status, response.url
    except HTTPError as error:
        return error.code, url


def _sign_in(browser: OpenerDirector, site: str, password: str) -> int:
    login = f"{site}/accounts/login/"
    return _post(browser, login, login, {"login": "ada", "password": password})[0]


def _submit(browser: OpenerDirector, site: str) -> int:
    form = f"{site}/new/"
    values = {"model": "bert", "gpu": "a10", "precision": "fp32", "current_batch_size": "16"}
    _, url = _post(browser, form, form, values)
    found = re.fullmatch(rf"{site}/(\d+)/", url)
    assert found, url
    return int(found[1])


def _status(site: str, token: str) -> int:
    headers = {"Authorization": f"Token {token}"}
    request = Request(f"{site}/api/v1/lab/", headers=headers)  # noqa: S310  # our own site
    try:
        with build_opener().open(request, timeout=30) as response:
            json.load(response)
            return int(response.status)
    except HTTPError as error:
        return error.code


def _kill(pid: int) -> None:
    """End a site's processes at once, as when its machine loses power."""
    parent = psutil.Process(pid)
    for process in [parent, *parent.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
