"""The browser: the system's Chromium, and the errors it must never report."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.sync_api import BrowserContext, ConsoleMessage, Error, Page, Request, Response

Theme = Literal["dark", "light"]

DESKTOP, TABLET, PHONE = (1440, 900), (820, 1180), (360, 740)
"""Width and height of the window in pixels."""

SCREENS = {"desktop": DESKTOP, "tablet": TABLET, "phone": PHONE}

_EVERY: list[tuple[str, Theme]] = [(screen, t) for screen in SCREENS for t in ("dark", "light")]
_FEW: list[tuple[str, Theme]] = [("desktop", "dark"), ("phone", "light")]
LOOKS = _EVERY if os.environ.get("MEMORYMARK_EVERY_LOOK") else _FEW
"""Sizes, which decide the layout, and themes, which decide the contrast: by default each once."""

WIDTHS = sorted({*LOOKS, ("tablet", "light")})
"""Screens and themes for the check of a page's width, which takes less than axe's second."""

NO_CHROMIUM = (
    "no Chromium is installed; make e2e installs it as root on Debian and Ubuntu, elsewhere: "
    "apt install chromium, or set CHROMIUM=/path/to/it"
)

_OMNIBOX = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup")
"""Pages that Chromium loads for the address bar of each new window, though nobody sees it here:
they are two thirds of the processor time that an empty window takes."""

_PLAYWRIGHTS = (
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding",
    "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled",
    "PreconnectToSearch",
)  # fmt: skip
"""Features that Playwright disables; of two such lists, Chromium heeds only the last."""

_SESSION = "sessionid"

_REPORTED_ELSEWHERE = (
    "the server responded with a status of",
    # A page that waits for its answer ends its request when it is left.
    "htmx:afterRequest",
    "htmx:sendError",
    "htmx:sendAbort",
)
"""Console messages about requests."""

_VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


def chromium(named: str | None) -> str:
    """The path of the browser.

    Args:
        named: A browser to use instead of the system's.

    Raises:
        FileNotFoundError: There is no such browser.
    """
    for name in [named] if named else ["chromium", "chromium-browser", "google-chrome"]:
        found = shutil.which(name)
        if found:
            return found
    raise FileNotFoundError(NO_CHROMIUM)


def launch_options(executable: str) -> dict[str, Any]:
    """Launch options; no sandbox is needed, since the browser only opens our own pages."""
    disabled = ",".join((*_OMNIBOX, *_PLAYWRIGHTS))
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    arguments.append(f"--disable-features={disabled}")
    return {"executable_path": executable, "args": arguments}


def context_options(
    url: str, screen: str = "desktop", theme: Theme = "dark", *, javascript: bool = True
) -> dict[str, Any]:
    """Options for a window on the site with this size and theme."""
    width, height = SCREENS[screen]
    cookie = {"name": "theme", "value": theme, "url": url}
    return {
        "base_url": url,
        "viewport": {"width": width, "height": height},
        "has_touch": screen == "phone",
        "java_script_enabled": javascript,
        "color_scheme": theme,
        "accept_downloads": True,
        "storage_state": {"cookies": [_full(cookie)], "origins": []},
    }


def session_cookie(url: str, session: str) -> Any:
    """The cookie of an open session on the site, for Playwright."""
    return _full({"name": _SESSION, "value": session, "url": url}) | {"httpOnly": True}


def session_of(context: BrowserContext) -> str:
    """The key of the session that a window is signed in with."""
    (found,) = (c["value"] for c in context.cookies() if c.get("name") == _SESSION)
    return found


def _full(cookie: dict[str, str]) -> dict[str, Any]:
    return {
        "name": cookie["name"],
        "value": cookie["value"],
        "domain": "127.0.0.1",
        "path": "/",
        "expires": -1,
        "httpOnly": False,
        "secure": False,
        "sameSite": "Lax",
    }


@dataclass
class Watch:
    """Collects the errors of a window; empty if all is well."""

    wrong: list[str] = field(default_factory=list)
    expected_statuses: set[int] = field(default_factory=set)

    def over(self, context: BrowserContext) -> None:
        """Watch each page opened in this window from now on."""
        context.add_init_script(_VIOLATIONS)
        context.on("page", self._page)

    def look(self, page: Page) -> None:
        """Collect the policy violations that the page has recorded."""
        try:
            self.wrong += page.evaluate("window.__violations || []")
        except Error as error:
            self.wrong.append(f"the page could not be read: {error}")

    def _page(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: {error}"))
        page.on("response", self._response)
        page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if any(text in message.text for text in _REPORTED_ELSEWHERE):
            return  # by the handlers of responses and of failed requests
        self.wrong.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # caused by leaving the page
            self.wrong.append(f"{request.failure}: {request.method} {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_statuses:
            self.wrong.append(f"{response.status}: {response.request.method} {response.url}")
