"""The page in a real headless browser: nothing on the console, no request, and it works.

`make nightly-tests` runs these; `--basetemp` keeps a screenshot of every kind of run."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

import reports
from reports.nightly_page.store_page import build_list
from tests.reports.nightly_page.test_index_page import bucket, nightly_run, written
from tests.support import report_fixtures as made
from tests.support.browser import Browser

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("browser"),
    pytest.mark.needs("chromium"),
]

SIZES = ((1280, 1800, False), (500, 1800, True), (375, 1800, False))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("store")
    folders = {kind: write(root / kind / "t") for kind, write in made.KINDS.items()}
    return {kind: reports.build(folder, plots=True) for kind, folder in folders.items()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def failed(browser: Browser, pages: dict[str, Path]) -> Page:
    """Open the page with every section."""
    return unfolded(browser.open(pages["explained"]))


def unfolded(page: Page) -> Page:
    """Open the folded sections of a page."""
    page.evaluate(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; }) ?? 0"
    )
    return page


@pytest.mark.parametrize("kind", made.KINDS)
def test_a_page_opens_without_errors_at_every_size(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    for width, height, dark in SIZES:
        page = browser.open(pages[kind], width=width, height=height, dark=dark)
        assert browser.console == []
        assert browser.requests == [pages[kind].resolve().as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("button.copy").first.is_visible()
        picture = page.screenshot(path=tmp_path / f"{kind}-{width}.png")
        assert struct.unpack(">II", picture[16:24]) == (width, height)


@pytest.mark.parametrize("kind", made.KINDS)
def test_verdict_and_schedule_are_readable_without_a_script(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    page = browser.open(pages[kind], scripts=False)
    assert page.locator("button.copy").first.is_hidden()
    assert page.locator("h1").is_visible()
    if kind == "explained":
        for part in (".story li.broke", "#strip .span"):
            assert (
                page.evaluate(f"document.querySelector('{part}').getBoundingClientRect().height")
                > 0
            )
        unfolded(page)
        for part in ("#reproduction .plan-words li", "#faults li", "#messages svg"):
            assert (
                page.evaluate(f"document.querySelector('{part}').getBoundingClientRect().height")
                > 0
            )


def test_the_log_slider_moves_by_keys_and_buttons(failed: Page) -> None:
    def at() -> int:
        return int(failed.evaluate("document.querySelector('.replay input').value"))

    steps = int(failed.evaluate("document.querySelector('.replay input').max"))
    broke = at()
    assert 0 < broke < steps
    assert "n1 acknowledges offset 1" in failed.text_content(".replay .step")
    failed.evaluate("document.querySelector('.replay input').focus()")
    failed.keyboard.press("ArrowRight")
    assert at() == broke + 1
    failed.keyboard.press("Home")
    assert at() == 0
    assert failed.text_content(".replay .step").startswith(f"step 1 of {steps + 1},")
    failed.keyboard.press("End")
    assert at() == steps
    failed.click(".replay [data-step=previous]")
    event = at()
    failed.click(".replay [data-step=previous]")
    assert at() < event < steps
    failed.click(".replay [data-step=broke]")
    assert at() == broke
    assert failed.evaluate("document.querySelector('.replay .step').classList.contains('broke')")
    assert failed.evaluate("document.querySelectorAll('.replay tbody tr').length") == 4
    said = failed.evaluate("document.querySelector('.replay input').getAttribute('aria-valuetext')")
    assert said == failed.text_content(".replay .step")


def test_a_command_is_copied_whole(failed: Page) -> None:
    failed.click("button.copy")
    wanted = failed.text_content(".command code")
    assert wanted.startswith("floodmark replay ")
    assert (
        failed.evaluate(
            "new Promise(done => { const look = () => navigator.clipboard.readText().then(text =>"
            f" text === {json.dumps(wanted)} ? done(text) : requestAnimationFrame(look));"
            " look(); })"
        )
        == wanted
    )
    assert failed.text_content("button.copy") == "copied"


def test_a_zoom_shows_a_part_of_the_same_drawing(failed: Page) -> None:
    shown = "document.querySelector('.view svg').viewBox.baseVal.width"
    assert failed.evaluate(shown) == 10_000
    failed.click("#time [data-zoom=in]")
    assert failed.evaluate(shown) == 5_000
    failed.click("#time [data-zoom=all]")
    assert failed.evaluate(shown) == 10_000
    ticks = "document.querySelector('.view').querySelectorAll('.axis .tick').length"
    assert 3 <= failed.evaluate(ticks) <= 14


def test_the_keyboard_reaches_every_control_and_shows_the_focus(failed: Page) -> None:
    seen = []
    for _ in range(12):
        failed.keyboard.press("Tab")
        where = failed.evaluate(
            "document.activeElement.className || document.activeElement.tagName"
        )
        outline = failed.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", where
        seen.append(where)
    assert seen[0] == "skip"
    assert seen.count("copy") >= 1
    assert "A" in seen, "the links to the parts of the page follow the commands"


def test_a_script_added_to_a_page_does_not_run(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "injected.html"
    source = pages["empty"].read_text("utf-8")
    page.write_text(source.replace("</body>", "<script>document.title='owned'</script></body>"))
    shown = browser.open(page)
    assert shown.evaluate("document.title") != "owned"
    assert any("Content Security Policy" in line for line in browser.console)


def test_the_list_of_a_store_leads_to_its_pages(browser: Browser, pages: dict[str, Path]) -> None:
    listed = browser.open(build_list(pages["explained"].parents[2]))
    assert browser.console == []
    assert listed.evaluate("getComputedStyle(document.querySelector('table')).display")
    link = listed.evaluate("document.querySelector('a[href*=explained]').href")
    assert link == pages["explained"].resolve().as_uri()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_the_index_of_nightly_runs_fits_and_loads_nothing(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    many = [bucket(f"kind-{n}-with-a-rather-long-name-of-its-mechanism", n + 1) for n in range(4)]
    known = [nightly_run(n, buckets=many, red=["one", "two"]) for n in range(1, 40)]
    known[-1].open = [f"kafka: {many[0].name} (simulated, last met in nightly run 7)"]
    text = written(tmp_path, *known)
    assert not re.search(r"<script|https?://|@import|url\(", text)
    file = tmp_path / "index.html"
    file.write_text(text, encoding="utf-8")
    page = browser.open(file, width=width, height=3000, dark=dark)
    assert browser.console == []
    assert browser.requests == [file.resolve().as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(x => !x.closest('.scroll, .skip, .sr')"
        " && x.getBoundingClientRect().right > innerWidth + 1).map(x => x.outerHTML)"
    )
    assert wide == []


@pytest.mark.parametrize(("width", "most"), [(1280, 5_000), (375, 9_000)])
@pytest.mark.parametrize("kind", ["invalid", "explained", "diverged", "hanging", "crashed"])
def test_the_page_of_a_failure_is_short(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, most: int
) -> None:
    page = browser.open(pages[kind], width=width, height=1000, dark=False)
    assert page.evaluate("document.documentElement.scrollHeight") <= most


def test_one_cursor_of_time_links_story_strip_and_log(failed: Page) -> None:
    """Pointing at a step of the story moves the strip's cursor and the log."""
    at = "document.querySelector('.story li.broke').dataset.t"
    failed.evaluate("document.querySelector('.replay [data-step=first]').click() ?? 0")
    before = failed.text_content(".replay .step")
    failed.evaluate(
        "document.querySelector('.story li.broke').dispatchEvent(new Event('pointerenter')) ?? 0"
    )
    assert failed.evaluate("document.querySelector('#strip .cursor').hidden") is False
    shown = failed.evaluate("document.querySelector('#strip .cursor span').textContent")
    assert abs(float(str(shown).split(" ")[0]) - float(failed.evaluate(at))) < 0.002
    assert failed.text_content(".replay .step") != before
