"""The common parts of all pages: style sheet, palette, template environment, writing.

The palette lives in `templates/base.css` and nowhere else: pages include that file, still plots and
tests read their colours out of it. A page is its `base.css` + its own style sheet."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import jinja2
from markupsafe import Markup

from checker.formats.story import RULES
from checker.formats.verdict import Verdict
from node.formats.errors import FloodmarkError
from node.formats.files import write_whole
from reports import wording

TEMPLATES: Final = Path(__file__).parent / "templates"
MOST_BYTES: Final = 5_000_000
EPOCH_COLOURS: Final = 8
"""Epochs take these in turn; each cell also says its epoch in text."""
MARKS: Final = {
    Verdict.VALID: "✓",
    Verdict.INVALID: "✗",
    Verdict.UNKNOWN: "?",
    Verdict.NOT_EXERCISED: "○",
    Verdict.NOT_EXAMINED: "–",
}
Scheme = Literal["light", "dark"]
_VARIABLE: Final = re.compile(r"--([a-z0-9-]+):\s*(#[0-9a-f]{6})\s*;")


class ReportError(FloodmarkError):
    """Raised if a page cannot be built; then no file is written."""


@lru_cache(maxsize=16)
def asset(name: str) -> str:
    """Return the text of a file of `templates/`, such as `run_page/page.css`."""
    return (TEMPLATES / name).read_text("utf-8")


def script_hash(name: str) -> str:
    """Return the hash of a script for a content security policy: `sha256-` and base 64."""
    return "sha256-" + base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode()


def stylesheet(*names: str) -> Markup:
    """Return the style sheet of a page: `base.css`, then the files `names` of `templates/`."""
    return Markup("\n".join(asset(name) for name in ("base.css", *names)))


def colours(scheme: Scheme = "light") -> dict[str, str]:
    """Return the palette by name (`ink`, `good`, `ep3`), each `#rrggbb`."""
    light, dark = asset("base.css").split("@media (prefers-color-scheme: dark)", 1)
    found = dict(_VARIABLE.findall(light))
    if scheme == "dark":
        found |= dict(_VARIABLE.findall(dark.split("\n}", 1)[0]))
    return found


@lru_cache(maxsize=4)
def template(name: str) -> jinja2.Template:
    """Return a template of `templates/`, or by an absolute name one of elsewhere. It escapes all
    values and refuses unknown names."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"bare": wording.bare, "clip": wording.clip, "size": wording.size}
    environment.globals |= {"Verdict": Verdict, "MARKS": MARKS, "RULES": RULES}
    return environment.get_template(name)


def write(target: Path, content: bytes, within: Path | None = None) -> Path:
    """Write a page, through no link below `within`. Raises ReportError when it is larger than a
    page may be, StorageError when the system cannot write it."""
    if len(content) > MOST_BYTES:
        raise ReportError(
            f"{target}: the page would be {wording.size(len(content))}, "
            f"more than {wording.size(MOST_BYTES)}"
        )
    write_whole(target, content, within)
    return target
