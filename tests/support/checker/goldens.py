"""Golden histories: for every anomaly of the catalogue one that has it and one just short of it.

`goldens.txt` tells each pair once, in the language of `story_text`: the steps that the two share,
those of `bad` and those of `good`, and what each of them has. That is written down by hand, after
docs/checks.md: every anomaly by name with its count, lack of exercise left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.checker.story import P, Story
from tests.support.checker.story_text import steps_of, take

Q = "log-1"


class Golden(NamedTuple):
    """A pair of histories of one anomaly, and what each of them has."""

    name: str
    steps: dict[bool, list[str]]
    found: dict[bool, dict[str, int]]

    @property
    def bad(self) -> dict[str, int]:
        """Count the anomalies of the history that has the anomaly, by name."""
        return self.found[True]

    @property
    def good(self) -> dict[str, int]:
        """Count the anomalies of the history just short of it, by name."""
        return self.found[False]

    def story(self, bad: bool) -> Story:
        """Return the history that has the anomaly, or the one just short of it."""
        return take(Story(P, Q), self.steps[bool(bad)])


def _read(text: str) -> Iterator[Golden]:
    for block in filter(None, text.removeprefix("# ").split("\n# ")):
        name, *lines = block.rstrip().splitlines()
        golden = Golden(name, {True: [], False: []}, {})
        of = [True, False]
        for line in filter(None, lines):
            first, _, rest = line.partition(" ")
            if first in ("bad", "good"):
                of, line = [first == "bad"], rest
            if first == "finds":
                golden.found[of[0]] = _counts(rest)
            elif not line.startswith("//"):
                for bad in of:
                    golden.steps[bad] += steps_of(line)
        yield golden


def _counts(text: str) -> dict[str, int]:
    found = (each.split() for each in text.split(", ") if text != "nothing")
    return {name: int(count) for name, count in found}


GOLDENS: dict[str, Golden] = {
    golden.name: golden for golden in _read(Path(__file__).with_suffix(".txt").read_text())
}
