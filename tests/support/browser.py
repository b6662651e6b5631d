"""The system's Chromium, driven by Playwright: pages for tests that look at them."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any, Final, Self

from playwright.sync_api import Page as ShownPage
from playwright.sync_api import sync_playwright

from node.formats.errors import FloodmarkError

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
ONLY_THIS_MACHINE: Final = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
DEADLINE_MS: Final = 30_000.0


def find() -> str:
    """Return the program of the browser. Raises FloodmarkError if there is none."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    raise FloodmarkError(f"none of {', '.join(NAMES)} is on PATH")


class Browser(contextlib.ExitStack):
    """One browser process; each page has a profile of its own."""

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
        """Open a file or an address in a page of this size (CSS pixels), and wait until it is
        loaded."""
        profile = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.callback(profile.close)
        profile.set_default_timeout(DEADLINE_MS)
        page = Page(profile.new_page())
        page.shown.goto(what if isinstance(what, str) else what.resolve().as_uri())
        return page


class Page:
    """One page, with the lines that it logged and the addresses that it asked for."""

    def __init__(self, shown: ShownPage) -> None:
        self.shown = shown
        self.console: list[str] = []
        self.requests: list[str] = []
        shown.on("console", lambda line: self.console.append(line.text))
        shown.on("pageerror", lambda error: self.console.append(str(error)))
        shown.on("request", lambda request: self.requests.append(request.url))

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; promises are waited for."""
        return self.shown.evaluate(script)

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches."""
        return self.shown.locator(selector).first.text_content() or ""

    def click(self, selector: str) -> None:
        """Click the first element that matches with the mouse."""
        self.shown.locator(selector).first.click()

    def press(self, key: str) -> None:
        """Press a key at the focus."""
        self.shown.keyboard.press(key)

    def picture(self, file: Path) -> Path:
        """Write a screenshot of the visible part as PNG."""
        self.shown.screenshot(path=file)
        return file
