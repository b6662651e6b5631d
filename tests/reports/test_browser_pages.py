"""The page in a real headless browser: nothing on the console, no request, and it works.

`make browser` runs these. Screenshots of every kind of run land in the test's folder
(`--basetemp` keeps them).
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import reports
from harness.bench.browser import Browser, Page
from harness.serve.server import StoreServer
from tests.support import report_fixtures as made
from tests.support import report_kinds as kinds

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

KINDS = ("valid", "invalid", "hanging", "crashed", "empty", "killed", "jepsen")
SIZES = ((1280, 1800, False), (500, 1800, True), (375, 1800, False))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("store")
    folders = {
        "valid": made.storm(root / "calm" / "t"),
        "invalid": kinds.explained(root / "unclean" / "t"),
        "hanging": kinds.hanging(root / "hang" / "t"),
        "crashed": kinds.crashed(root / "crash" / "t"),
        "empty": made.empty(root / "empty" / "t"),
        "killed": made.killed(root / "killed" / "t"),
        "jepsen": kinds.jepsen(root / "jepsen"),
    }
    return {kind: reports.build(folder, plots=True) for kind, folder in folders.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def invalid(browser: Browser, pages: dict[str, Path]) -> Page:
    return browser.open(pages["invalid"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_quietly_at_every_size(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    for width, height, dark in SIZES:
        page = browser.open(pages[kind], width=width, height=height, dark=dark)
        assert page.console == []
        assert page.requests == [pages[kind].resolve().as_uri()]
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.querySelector('button.copy').hidden") is False
        picture = page.picture(tmp_path / f"{kind}-{width}.png").read_bytes()
        assert struct.unpack(">II", picture[16:24]) == (width, height)


@pytest.mark.parametrize("kind", KINDS)
def test_verdict_and_schedule_are_readable_without_a_script(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    page = browser.open(pages[kind], scripts=False)
    assert page.run("document.querySelector('button.copy').hidden") is True
    assert page.run("document.querySelector('h1').offsetHeight") > 0
    if kind == "invalid":
        for part in (
            ".timeline li.broke",
            "#reproduction .plan-words li",
            "#faults li",
            "#messages svg",
        ):
            assert page.run(f"document.querySelector('{part}').getBoundingClientRect().height") > 0


def test_the_slider_goes_by_keys_and_buttons(invalid: Page) -> None:
    def at() -> int:
        return int(invalid.run("document.querySelector('.replay input').value"))

    steps = int(invalid.run("document.querySelector('.replay input').max"))
    broke = at()
    assert 0 < broke < steps
    assert "n3 becomes leader of epoch 2" in invalid.text(".replay .step")
    invalid.run("document.querySelector('.replay input').focus()")
    invalid.press("ArrowRight")
    assert at() == broke + 1
    invalid.press("Home")
    assert at() == 0
    assert invalid.text(".replay .step").startswith(f"step 1 of {steps + 1},")
    invalid.press("End")
    assert at() == steps
    invalid.click(".replay [data-step=previous]")
    event = at()
    invalid.click(".replay [data-step=previous]")
    assert at() < event < steps
    invalid.click(".replay [data-step=broke]")
    assert at() == broke
    assert invalid.run("document.querySelector('.replay .step').classList.contains('broke')")
    assert invalid.run("document.querySelectorAll('.replay tbody tr').length") == 4
    said = invalid.run("document.querySelector('.replay input').getAttribute('aria-valuetext')")
    assert said == invalid.text(".replay .step")


def test_a_command_is_copied_whole(browser: Browser, invalid: Page) -> None:
    browser.ask("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    invalid.click("button.copy")
    wanted = invalid.text(".command code")
    assert wanted.startswith("floodmark run --schedule store/unclean/")
    assert (
        invalid.run(
            "new Promise(done => { const look = () => navigator.clipboard.readText().then(text =>"
            f" text === {json.dumps(wanted)} ? done(text) : requestAnimationFrame(look));"
            " look(); })"
        )
        == wanted
    )
    assert invalid.text("button.copy") == "copied"


def test_a_zoom_shows_a_part_of_the_same_drawing(invalid: Page) -> None:
    shown = "document.querySelector('.view svg').viewBox.baseVal.width"
    assert invalid.run(shown) == 10_000
    invalid.click("#time [data-zoom=in]")
    assert invalid.run(shown) == 5_000
    invalid.click("#time [data-zoom=all]")
    assert invalid.run(shown) == 10_000
    ticks = "document.querySelectorAll('.view .axis .tick').length"
    assert 3 <= invalid.run(ticks) <= 14


def test_the_keyboard_reaches_everything_and_shows_where_it_is(invalid: Page) -> None:
    seen = []
    for _ in range(12):
        invalid.press("Tab")
        where = invalid.run("document.activeElement.className || document.activeElement.tagName")
        outline = invalid.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", where
        seen.append(where)
    assert seen[0] == "skip"
    assert seen.count("copy") >= 3
    assert "A" in seen, "the links to the parts of the page follow the commands"


def test_only_its_own_script_may_run(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "injected.html"
    source = pages["empty"].read_text("utf-8")
    page.write_text(source.replace("</body>", "<script>document.title='owned'</script></body>"))
    shown = browser.open(page)
    assert shown.run("document.title") != "owned"
    assert any("Content Security Policy" in line for line in shown.console)


def test_a_served_page_works_and_a_script_of_somebody_else_does_not(
    browser: Browser, pages: dict[str, Path]
) -> None:
    store = pages["invalid"].parents[2]
    other = store / "other" / "t"
    other.mkdir(parents=True)
    (other / "run.json").write_text("{}")
    (other / "report.html").write_text(
        "<!doctype html><title>as it was</title><p>x</p><script>document.title='owned'</script>"
    )
    with StoreServer("127.0.0.1", 0, store) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            listed = browser.open(server.address)
            assert listed.console == []
            assert listed.run("getComputedStyle(document.querySelector('table')).display")
            listed.run("document.querySelector('button').click()")
            path = pages["invalid"].relative_to(store)
            page = browser.open(f"{server.address}store/{path}")
            assert page.console == []
            assert page.requests == [f"{server.address}store/{path}"]
            assert page.run("document.querySelector('button.copy').hidden") is False
            picture = "(async () => { const i = document.images[0]; i.loading = 'eager';"
            picture += "await i.decode(); return i.naturalWidth; })()"
            assert page.run(picture) > 0
            page.click(".replay [data-step=previous]")
            assert page.text(".replay .step")
            shown = browser.open(f"{server.address}store/other/t/report.html")
            assert shown.run("document.title") == "as it was"
            assert any("Content Security Policy" in line for line in shown.console)
        finally:
            server.stop()
            thread.join()
