"""The page in a real headless browser: no console error, no request, and the script works.

Screenshots of every kind of run land in the test's folder (`--basetemp` keeps them).
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import reports
from tests import report_fixtures as made

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.xdist_group("browser"),
]

# Stands in for a user: zooms, copies, points, and tells the frame around it what came of it.
DRIVER = """
<script>
addEventListener("load", async () => {
  const say = [];
  const view = document.querySelector(".view");
  const svg = view.querySelector("svg");
  const zoom = view.previousElementSibling.querySelector(".zoom");
  say.push("whole " + svg.getAttribute("viewBox").split(" ")[2]);
  zoom.querySelector("[data-zoom=in]").click();
  say.push("half " + svg.getAttribute("viewBox").split(" ")[2]);
  zoom.dispatchEvent(new KeyboardEvent("keydown", {key: "0", bubbles: true}));
  say.push("again " + svg.getAttribute("viewBox").split(" ")[2]);
  const button = document.querySelector("button.copy");
  button.click();
  await new Promise((done) => setTimeout(done, 300));
  say.push(button.textContent);
  const box = view.querySelector(".axis .track").getBoundingClientRect();
  view.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2}));
  say.push("cursor " + view.querySelector(".cursor").hidden);
  const block = document.querySelector(".replay");
  const step = (how) => {
    block.querySelector(`[data-step=${how}]`).click();
    return block.querySelector(".said").textContent;
  };
  say.push(step("broke"), step("back"), step("first"), step("on"), step("last"));
  say.push("rows " + block.querySelectorAll("tbody tr").length);
  const cut = ".scroll, code, .track, .skip, .sr";
  const wide = [...document.querySelectorAll("body *")].filter((x) =>
    x.getBoundingClientRect().right > innerWidth + 1 && !x.closest(cut));
  say.push("overflow " + wide.map((x) => x.className || x.tagName).join(","));
  parent.postMessage(say.join("; "), "*");
});
</script>
"""
# A browser's window has a least width; a frame has none.
FRAME = """<body style="margin:0"><script>
addEventListener("message", (event) => { document.body.dataset.said = event.data; });
</script><iframe src="driven.html" style="border:0;width:{width}px;height:3000px"></iframe></body>
"""


def browse(page: Path, work: Path, *options: str) -> tuple[str, str]:
    """Open a page without any network; returns the resulting document and the browser's log."""
    assert BROWSER is not None
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={work / 'profile'}",
        "--enable-logging=stderr", "--virtual-time-budget=4000", *options, page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def console(log: str) -> list[str]:
    """What the page itself said on the console."""
    return [line for line in log.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("store")
    return {
        "valid": made.storm(root / "calm" / "t"),
        "invalid": made.storm(root / "unclean" / "t", broken=True),
        "empty": made.empty(root / "empty" / "t"),
        "killed": made.killed(root / "killed" / "t"),
    }


@pytest.mark.parametrize("kind", ["valid", "invalid", "empty", "killed"])
def test_opens_without_a_word_on_the_console(
    folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    picture = tmp_path / f"{kind}.png"
    page = reports.build(folders[kind])
    size = "--window-size=1400,3000"
    document, log = browse(page, tmp_path, size, "--dump-dom", f"--screenshot={picture}")
    assert console(log) == []
    assert "</footer>" in document
    assert '<button type="button" class="copy">' in document, "the script did not run"
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (1400, 3000)


@pytest.mark.parametrize("width", [1400, 375])
def test_zoom_copy_cursor_and_no_overflow(
    folders: dict[str, Path], tmp_path: Path, width: int
) -> None:
    source = reports.build(folders["invalid"]).read_text("utf-8")
    # The policy of the real page forbids any script but its own, the driver's too.
    source, removed = re.subn(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", source)
    assert removed == 1
    page = tmp_path / "driven.html"
    page.write_text(source.replace("</body>", DRIVER + "</body>"), "utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)), "utf-8")
    document, log = browse(frame, tmp_path, "--dump-dom", "--window-size=1400,3000")
    assert console(log) == []
    said = re.search(r'data-said="([^"]*)"', document)
    assert said is not None
    assert said[1].split("; ")[:3] == ["whole 10000", "half 5000", "again 10000"]
    assert said[1].split("; ")[3] in ("copied", "selected")
    cursor, broke, back, first, on, last, rows, overflow = said[1].split("; ")[4:]
    assert cursor == "cursor false"
    assert broke.startswith("step ")
    assert broke.split(" of ")[0] != back.split(" of ")[0]
    assert first.startswith("step 1 of ")
    assert on.startswith("step 2 of ")
    steps = int(last.split(",")[0].rpartition(" ")[2])
    assert last.startswith(f"step {steps} of {steps},")
    assert rows == "rows 4", "what was acknowledged, and three replicas"
    assert overflow == "overflow "


def test_only_its_own_script_may_run(folders: dict[str, Path], tmp_path: Path) -> None:
    source = reports.build(folders["empty"]).read_text("utf-8")
    page = tmp_path / "injected.html"
    page.write_text(source.replace("</body>", "<script>document.title='owned'</script></body>"))
    document, log = browse(page, tmp_path, "--dump-dom")
    assert "<title>owned" not in document
    assert any("Content Security Policy" in line for line in console(log))
