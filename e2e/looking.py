"""Checks an open page in each size, and with axe for accessibility in each theme."""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page

from e2e.browsing import DESKTOP, LOOKS, SCREENS, WIDTHS

_BROKEN_WORDS = """root => {
  const broken = [];
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const word of text.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""

_CUT_LABELS = """async address => {
  const text = await (await fetch(address)).text();
  const picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  document.body.append(picture);
  const { width, height } = picture.viewBox.baseVal;
  const labels = [...picture.querySelectorAll("text")];
  const cut = labels.filter((label) => {
    const box = label.getBBox();
    return box.x < 0 || box.y < 0 || box.x + box.width > width || box.y + box.height > height;
  });
  const said = (some) => some.map((label) => label.textContent);
  const result = { labels: said(labels), cut: said(cut) };
  picture.remove();
  return result;
}"""

_OVERLAPPING = """() => {
  const shown = [...document.querySelectorAll(".site-header a, .site-header button")]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }));
  const boxes = shown.map((each) => each.getBoundingClientRect());
  const said = (each) => each.ariaLabel || each.innerText;
  const found = [];
  boxes.forEach((one, at) => boxes.slice(0, at).forEach((other, before) => {
    const meet = one.left < other.right - 1 && other.left < one.right - 1
      && one.top < other.bottom - 1 && other.top < one.bottom - 1;
    if (meet && !shown[at].contains(shown[before]) && !shown[before].contains(shown[at])) {
      found.push(`${said(shown[before])} and ${said(shown[at])} overlap`);
    }
  }));
  return found;
}"""

_WITHOUT_TARGET = """() => {
  const target = (element, named) => {
    const [how, ...selector] = named.split(" ");
    if (how === "closest") return element.closest(selector.join(" "));
    return named === "this" ? element : document.querySelector(named);
  };
  return [...document.querySelectorAll("[hx-target]")]
    .filter((element) => !target(element, element.getAttribute("hx-target")))
    .map((lost) => `no ${lost.getAttribute("hx-target")} for ${lost.outerHTML.slice(0, 120)}`);
}"""

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
        found[0].extend([*overlapping(page), *without_target(page)])
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


def overlapping(page: Page) -> list[str]:
    """The links and buttons of the page's head that lie over each other."""
    found: list[str] = page.evaluate(_OVERLAPPING)
    return found


def without_target(page: Page) -> list[str]:
    """The elements whose answer from the server has no place on the page, so that it is lost."""
    found: list[str] = page.evaluate(_WITHOUT_TARGET)
    return found


def overflow(page: Page) -> int:
    """The width by which the page exceeds the window, in pixels."""
    wider: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return wider


def broken_words(element: Locator) -> list[str]:
    """The words of an element that do not stand on one line."""
    found: list[str] = element.evaluate(_BROKEN_WORDS)
    return found


def labels_of_picture(page: Page, address: str) -> tuple[list[str], list[str]]:
    """The labels of one of our SVG pictures, and those that reach beyond its edge.

    A PNG is drawn from the same picture.
    """
    found = page.evaluate(_CUT_LABELS, address)
    return found["labels"], found["cut"]


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
