"""The system's Chromium, driven by Playwright: pages for tests that look at them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Self

from playwright.sync_api import Page, sync_playwright

from node.formats import host_tools
from node.formats.errors import FloodmarkError

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
ONLY_THIS_MACHINE: Final = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
DEADLINE_MS: Final = 30_000.0


def find() -> str:
    """Return the program of the browser. Raises FloodmarkError if there is none."""
    for name in NAMES:
        if (found := host_tools.program(name)) is not None:
            return found
    raise FloodmarkError(f"none of {', '.join(NAMES)} is on PATH")


class Browser(contextlib.ExitStack):
    """One browser process; each page has a profile of its own. Of the page that was opened last,
    `console` has the lines that it logged and `requests` the addresses that it asked for."""

    console: list[str]
    requests: list[str]

    def __enter__(self) -> Self:
        play = self.enter_context(sync_playwright())
        self._browser = self.enter_context(
            play.chromium.launch(
                executable_path=find(), args=["--no-sandbox", "--disable-gpu", ONLY_THIS_MACHINE]
            )
        )
        return self

    def open(
        self,
        what: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        scripts: bool = True,
    ) -> Page:
        """Open a file or an address in a page of this size (CSS pixels), and await its load."""
        profile = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.callback(profile.close)
        profile.set_default_timeout(DEADLINE_MS)
        page = profile.new_page()
        self.console, self.requests = [], []
        page.on("console", lambda line: self.console.append(line.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(what if isinstance(what, str) else what.resolve().as_uri())
        return page
