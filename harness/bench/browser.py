"""A headless Chromium, by its own DevTools protocol over a pipe: no port, no driver.

`Browser` starts one process; `open` gives a page of its own, which says what it logged and what it
asked the network for. Everything waits for answers of the browser, with a deadline.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Self

from node.formats import json_input
from node.formats.errors import FloodmarkError
from node.runtime.reap import REAP_S

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEADLINE_S: Final = 60.0
MISSING: Final = (
    f"pages are opened in a real browser here, and none of {', '.join(NAMES)} is on PATH "
    "(Debian: apt-get install chromium)"
)
_KEYS: Final = {
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
    "Tab": 9,
    "Enter": 13,
    " ": 32,
}


class BrowserError(FloodmarkError):
    """The browser did not answer, or a script in the page failed."""


def find() -> str:
    """The browser's program. Raises BrowserError, with what to do, when there is none."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    raise BrowserError(MISSING)


class Browser:
    """One browser process with a profile of its own and no network but this machine."""

    def __init__(self, profile: Path) -> None:
        program = find()
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The protocol's pipe is descriptors 3 and 4, whatever numbers ours have.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                shell,
                "browser",
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--disable-background-networking",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._buffer = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        os.close(self._read)
        os.close(self._write)

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
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.ask("Emulation.setEmulatedMedia", features=[scheme])
        page.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        address = what if isinstance(what, str) else what.resolve().as_uri()
        page.ask("Page.navigate", url=address)
        self._wait(lambda: page.loaded, f"{what} to load")
        return page

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command and its answer. Raises BrowserError."""
        self._number += 1
        number = self._number
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        self._wait(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        found: dict[str, Any] = answer.get("result", {})
        return found

    def _wait(self, is_so: Any, what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while not is_so():
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise BrowserError(f"the browser let {DEADLINE_S:.0f} s go by: {what}")
            some = os.read(self._read, 1 << 20)
            if not some:
                raise BrowserError(f"the browser ended: {what}")
            self._buffer += some
            *whole, self._buffer = self._buffer.split(b"\0")
            for text in whole:
                self._take(json_input.decode(text, dict[str, Any]))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
        elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
            page.hear(message["method"], message["params"])


class Page:
    """One page. `console` is what it logged, `requests` what it asked for beside itself."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.console: list[str] = []
        self.requests: list[str] = []
        self.loaded = False

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command about this page."""
        return self._browser.ask(method, self._session, **parameters)

    def hear(self, method: str, about: dict[str, Any]) -> None:
        """An event of this page."""
        match method:
            case "Page.loadEventFired":
                self.loaded = True
            case "Runtime.consoleAPICalled":
                self.console.append(str([x.get("value") for x in about["args"]]))
            case "Runtime.exceptionThrown":
                self.console.append(str(about["exceptionDetails"].get("text")))
            case "Log.entryAdded":
                self.console.append(str(about["entry"].get("text")))
            case "Network.requestWillBeSent":
                self.requests.append(str(about["request"]["url"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        found = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def first_paint_ms(self) -> float:
        """From the beginning of the navigation to the first content that was drawn."""
        return float(
            self.run(
                "new Promise(done => new PerformanceObserver(list => list.getEntries().forEach(e =>"
                " e.name === 'first-contentful-paint' && done(e.startTime)))"
                ".observe({type: 'paint', buffered: true}))"
            )
        )

    def click(self, selector: str) -> None:
        """Scroll an element into view and click it with the mouse."""
        box = self.run(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            # Where it is counts once the page has been drawn there.
            "for (let i = 0; i < 2; i += 1) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        if key == "Enter":
            about["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, **about)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size, in CSS pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self, file: Path) -> Path:
        """A screenshot of what is in view, as PNG."""
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))
        return file
