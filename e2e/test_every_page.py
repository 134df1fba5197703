"""Each page as it must be for everybody: no complaint of the browser, no barrier, no overflow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from e2e import browsing, doing, pages
from e2e.browsing import SCREENS, Theme, Watch
from e2e.conftest import Account, Open
from e2e.looking import THEMES, barriers, overflow
from e2e.running import Site

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=[(s, t) for s in SCREENS for t in THEMES], ids="-".join)
def window(
    request: pytest.FixtureRequest, demo: Site, demo_account: Account, browser: Browser
) -> Iterator[tuple[Page, Watch]]:
    """A window of that size and theme on the demo, signed in."""
    screen, theme = request.param
    watch = Watch()
    context = browser.new_context(**browsing.context_options(demo.url, screen, theme))
    context.set_default_timeout(doing.PATIENCE_MS)
    watch.over(context)
    page = context.new_page()
    doing.sign_in(page, demo_account.name, demo_account.password)
    yield page, watch
    context.close()


def test_nothing_is_wrong_with_any_page(
    window: tuple[Page, Watch], subtests: pytest.Subtests
) -> None:
    page, watch = window
    for name, address in pages.addresses(page).items():
        with subtests.test(page=name):
            watch.wrong.clear()
            watch.expected_statuses = {404} if name == pages.NOT_FOUND else set()
            page.goto(address, wait_until="networkidle")
            watch.look(page)

            assert watch.wrong == []
            assert barriers(page) == []
            assert overflow(page) <= 0


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_is_wrong_with_the_way_in(
    demo: Site, open_page: Open, screen: str, theme: Theme
) -> None:
    page = open_page(demo, screen=screen, theme=theme)
    for address in pages.WITHOUT_LOGIN.values():
        page.goto(address)

        assert barriers(page) == []
        assert overflow(page) <= 0
