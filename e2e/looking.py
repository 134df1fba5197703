"""Looks at an open page as everybody sees it: in each size and theme, and with axe."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from e2e.browsing import DESKTOP, SCREENS, Theme

THEMES: list[Theme] = ["dark", "light"]
SERIOUS = ("serious", "critical")


def look(page: Page, name: str) -> None:
    """In every size and theme, nothing is wrong with the page that is open.

    Args:
        page: It.
        name: Of its pictures, in the folder that ``MEMORYMARK_PICTURES`` names, if any.
    """
    folder = os.environ.get("MEMORYMARK_PICTURES")
    for (screen, (width, height)), theme in product(SCREENS.items(), THEMES):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        found = (barriers(page), overflow(page))
        if folder:
            page.screenshot(path=Path(folder) / f"{name}-{screen}-{theme}.png", full_page=True)
        if found[0] or found[1] > 0:
            raise AssertionError(f"{name}, {screen}, {theme}: {found}")
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})


def barriers(page: Page) -> list[str]:
    """What axe finds serious, with the first element of each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:160]}"
        for v in found
        if v["impact"] in SERIOUS
    ]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wider: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return wider
