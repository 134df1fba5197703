"""Screenshots of every page of the demo: ``python -m e2e.screenshots FOLDER``.

Desktop and phone, dark and light. Faults of a page are printed, and the exit status is then 1.
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

THEMES: tuple[Theme, ...] = ("dark", "light")


def main(arguments: list[str] | None = None) -> int:
    """Start the demo, take the screenshots, and stop it."""
    parser = argparse.ArgumentParser(prog="python -m e2e.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    executable = browsing.chromium(os.environ.get("CHROMIUM"))
    watch = Watch(expected_statuses={404})
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browsing.launch_options(executable))
        site = Site(Path(data), "demo")
        try:
            for screen, theme in product(SCREENS, THEMES):
                _take(browser, site, folder / f"{screen}-{theme}", screen, theme, watch)
        finally:
            site.end()
    sys.stdout.writelines(f"{line}\n" for line in watch.wrong)
    return 1 if watch.wrong else 0


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

    for name, address in pages.WITHOUT_LOGIN.items():
        picture(name, address)
    doing.sign_in(page, "demo", site.demo_password)
    for name, address in pages.addresses(page).items():
        picture(name, address)
    context.close()


if __name__ == "__main__":
    sys.exit(main())
