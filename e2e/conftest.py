from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e import browsing, doing
from e2e.browsing import Theme, Watch
from e2e.running import Account, Site
from engine.traces.trace_files import FOLDER_VARIABLE

ADMIN, ADMIN_PASSWORD = "grace", "a compiler of 1952"

Open = Callable[..., Page]

MEMBERS_AT_ONCE = 10

PHONE: dict[str, Any] = {"screen": "phone", "theme": "light"}


@pytest.fixture(scope="session", autouse=True)
def _traces_are_kept_for_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep traces on disk, as sites do, in one folder for all sites of all test processes.

    The traces of the popular models are most of what the engines compute.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder / "traces"))
        yield


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Overrides pytest-playwright's fixture, which would look for its own browser."""
    return browsing.launch_options(browsing.chromium(os.environ.get("CHROMIUM")))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """The lab that most tests share."""
    yield from new_site(tmp_path_factory.mktemp("site"), browser)


def new_site(folder: Path, browser: Browser) -> Iterator[Site]:
    """A new lab, set up by its first admin, and ended when the caller is done with it."""
    deadlines = dict.fromkeys(("PREDICT_DEADLINE_SECONDS", "PLAN_DEADLINE_SECONDS"), "600")
    site = Site(folder, settings=deadlines)
    try:
        page = browser.new_page(base_url=site.url)
        doing.set_up(page, site.setup_link, ADMIN, ADMIN_PASSWORD)
        page.close()
        yield site
    finally:
        site.end()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo: a lab with a year of history."""
    site = Site(tmp_path_factory.mktemp("demo"), "demo")
    yield site
    site.end()


@pytest.fixture(scope="session")
def demo_account(demo: Site, browser: Browser) -> Account:
    """The demo's account, signed in once for all tests."""
    account = Account("demo", demo.demo_password)
    context = browser.new_context(**browsing.context_options(demo.url))
    doing.sign_in(context.new_page(), account.name, account.password)
    session = browsing.session_of(context)
    context.close()
    return replace(account, session=session)


@pytest.fixture(scope="session")
def members(site: Site) -> Iterator[Account]:
    """New members of the lab, one after another."""

    def added() -> Iterator[Account]:
        for first in count(10_000_000, MEMBERS_AT_ONCE):
            names = [f"m{number}" for number in range(first, first + MEMBERS_AT_ONCE)]
            yield from site.add_members(names)

    return added()


@pytest.fixture
def member(members: Iterator[Account]) -> Account:
    """A new member of the lab, for one test."""
    return next(members)


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Fails the test if a window reports an error."""
    watch = Watch()
    yield watch
    assert watch.wrong == []


@pytest.fixture
def open_page(browser: Browser, watch: Watch) -> Iterator[Open]:
    """Opens watched windows on a site: with an account signed in, on the first page."""
    opened: list[Page] = []

    def opener(
        site: Site,
        account: Account | None = None,
        *,
        screen: str = "desktop",
        theme: Theme = "dark",
        javascript: bool = True,
    ) -> Page:
        options = browsing.context_options(site.url, screen, theme, javascript=javascript)
        context = browser.new_context(**options)
        context.set_default_timeout(doing.TIMEOUT_MS)
        watch.over(context)
        page = context.new_page()
        opened.append(page)
        if account and account.session:
            doing.resume(page, site.url, account.session)
        elif account:
            doing.sign_in(page, account.name, account.password)
        return page

    yield opener
    for page in opened:
        watch.look(page)
        page.context.close()
