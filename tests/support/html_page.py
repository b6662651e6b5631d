"""A page taken apart: what it loads, what it links, and what it says."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

FETCHED = ("src", "srcset", "action", "poster", "data", "xlink:href")


class HtmlPage(HTMLParser):
    """The tags, ids, links and texts of a page; `blocks` has the text of each HTML block."""

    VOID = frozenset({"meta", "link", "br", "path", "input", "img"})
    BLOCKS = frozenset({"p", "li", "h1", "h2", "h3", "dd", "dt", "figcaption", "th", "td"})

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.source = file.read_text("utf-8")
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.blocks: list[str] = []
        self._block: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self._end_block(tag)
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        if tag == "link":
            self.loads.append(values["href"])
        self.loads += [values[key] for key in FETCHED if key in values]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._end_block(tag)
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self.open):
            return
        self.words.append(data)
        if "svg" not in self.open:
            self._block.append(data)

    def _end_block(self, tag: str) -> None:
        if tag in self.BLOCKS and (text := " ".join(" ".join(self._block).split())):
            self.blocks.append(text)
        if tag in self.BLOCKS:
            self._block.clear()

    @property
    def text(self) -> str:
        """All visible text, with single spaces."""
        return " ".join(" ".join(self.words).split())
