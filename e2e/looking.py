"""Checks an open page in each size, and with axe for accessibility in each theme."""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from e2e.browsing import DESKTOP, LOOKS, SCREENS, WIDTHS

SERIOUS = ("serious", "critical")

_MOMENTS, _MOMENT_MS = 50, 100


def look(page: Page, name: str) -> None:
    """Check the open page in every size; in every theme too with ``make e2e-all``.

    Whether it is too wide depends on the size alone. What axe finds depends on the theme (contrast)
    and on what is shown, which differs most between desktop and phone.

    Args:
        page: The open page.
        name: File name for screenshots, saved if ``MEMORYMARK_PICTURES`` is set to a folder.
    """
    folder = os.environ.get("MEMORYMARK_PICTURES")
    for screen, theme in WIDTHS:
        width, height = SCREENS[screen]
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        found = (barriers(page) if (screen, theme) in LOOKS else [], overflow(page))
        if folder:
            page.screenshot(path=Path(folder) / f"{name}-{screen}-{theme}.png", full_page=True)
        if found[0] or found[1] > 0:
            raise AssertionError(f"{name}, {screen}, {theme}: {found}")
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})


def barriers(page: Page) -> list[str]:
    """Serious accessibility problems that axe finds, each with its first element."""
    found = Axe().run(page).response["violations"]
    return [
        f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:160]}"
        for v in found
        if v["impact"] in SERIOUS
    ]


def overflow(page: Page) -> int:
    """The width by which the page exceeds the window, in pixels."""
    wider: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return wider


def overflow_at(page: Page, screen: str) -> int:
    """The width by which the page would exceed a window of another size, in pixels."""
    before = page.viewport_size
    width, height = SCREENS[screen]
    page.set_viewport_size({"width": width, "height": height})
    for _ in range(_MOMENTS):  # charts follow a little later
        if overflow(page) <= 0:
            break
        page.wait_for_timeout(_MOMENT_MS)
    wider = overflow(page)
    if before is not None:
        page.set_viewport_size(before)
    return wider
