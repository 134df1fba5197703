"""Screenshots of every page of the demo: ``python -m e2e.screenshots FOLDER``.

Desktop, tablet and phone, dark and light. Faults of a page are printed, and the exit status is then
1. ``--docs docs`` renews the pictures of README and docs too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from e2e import browsing, doing, pages
from e2e.browsing import SCREENS, Theme, Watch
from e2e.running import Site
from memorymark_site.tests.fault_statuses import STATUSES

IN_DOCS = {"analysis": 1180, "compare": 1500, "history": 820, "overview": 1420}
"""The pictures of README and docs by page: how much of its top they show, in pixels."""

DOCS_WIDTH = 1280

_ARE_DRAWN = """() => [...document.querySelectorAll("[data-chart]")].every(
  (chart) => chart.getBoundingClientRect().top > innerHeight || chart.querySelector(".main-svg")
)"""

THEMES: tuple[Theme, ...] = ("dark", "light")


def main(arguments: list[str] | None = None) -> int:
    """Start the demo, take the screenshots, and stop it."""
    parser = argparse.ArgumentParser(prog="python -m e2e.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="where the pictures of README and docs are")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    executable = browsing.chromium(os.environ.get("CHROMIUM"))
    watch = Watch(expected_statuses=pages.REFUSED | set(STATUSES.values()))
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browsing.launch_options(executable))
        site = Site(Path(data), "demo")
        try:
            for screen, theme in product(SCREENS, THEMES):
                _take(browser, site, folder / f"{screen}-{theme}", screen, theme, watch)
            if options.docs:
                take_for_docs(browser, site, options.docs)
        finally:
            site.end()
    sys.stdout.writelines(f"{line}\n" for line in watch.wrong)
    return 1 if watch.wrong else 0


def take_for_docs(browser: Browser, site: Site, folder: Path) -> None:
    """Take the tops of some pages, dark, with all charts that they show drawn."""
    context = browser.new_context(**browsing.context_options(site.url))
    page = context.new_page()
    doing.sign_in(page, "demo", site.demo_password)
    addresses = pages.addresses(page)
    for name, height in IN_DOCS.items():
        page.set_viewport_size({"width": DOCS_WIDTH, "height": height})
        page.goto(addresses[name], wait_until="networkidle")
        page.wait_for_function(_ARE_DRAWN)
        page.screenshot(path=folder / f"{name}.png")
    context.close()


def _take(
    browser: Browser, site: Site, folder: Path, screen: str, theme: Theme, watch: Watch
) -> None:
    """Take all pages in one size and theme."""
    folder.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(**browsing.context_options(site.url, screen, theme))
    watch.over(context)
    page = context.new_page()

    def picture(name: str, address: str) -> None:
        page.goto(address, wait_until="networkidle")
        watch.look(page)
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        sys.stdout.write(f"{folder / name}.png\n")

    for name, address in (pages.WITHOUT_LOGIN | pages.FAULTS).items():
        picture(name, address)
    doing.sign_in(page, "demo", site.demo_password)
    for name, address in pages.addresses(page).items():
        picture(name, address)
    context.close()


if __name__ == "__main__":
    sys.exit(main())
