"""Stories as text: each line of steps calls methods of `Story`, and what the checker finds follows.

    # a poll that skips
    three; poll 0:10; poll 2:12
    finds poll-skip 1 @2

A step is a method of `Story` with its arguments: `0:10:2` is the tuple (0, 10, 2), `n1,n2` a tuple
of names, `at=0` a keyword. `on log-0 log-1` names the partitions and comes first; `let NAME STEPS`
at the top of a file gives steps a name. Each block of expectations judges the story so far:

    finds NAME COUNT @OFFSET, ... | nothing     what counts against the system, exactly; @OFFSET
                                                if it has one, `in PARTITION` outside of log-0
    allows ...                                  the same of what the promise allows
    lacks NAME, ... | nothing                   why the run is not exercised
    unknown PROPERTY, ... | nothing             the properties that are unknown
    verdict VERDICT                             of the run
    examined PROPERTY COUNT                     how much was examined for a property
    shows WITNESS, ...                          the witnesses of the first finding
    says NAME TEXT                              the sentence of an anomaly or a property
    sentence TEXT                               the sentence of the run

    python -m tests.support.checker.story_text --update

writes all lines of `says` and `sentence` again, and nothing else: they are prose, not truth."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from checker.formats.verdict import Anomaly, RunResult, Verdict
from tests.support.checker.story import P, Story
from tests.support.paths import ROOT

FOLDER = ROOT / "tests/checker/checks/stories"
PROSE = ("says", "sentence")
FIELDS = ("finds", "allows", "lacks", "unknown", "verdict", "examined", "shows", *PROSE)
WIDTH = 110

NO_STEPS: Mapping[str, tuple[str, ...]] = {}
Scene = TypeVar("Scene")
Expected = dict[str, list[str]]
"""The lines of a block of expectations, by their first word."""


class Stage(NamedTuple):
    """Steps of a story, and what is found once they are taken."""

    steps: tuple[str, ...]
    expected: Expected


class Told(NamedTuple):
    """One story of a file."""

    file: str
    name: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    def results(self, folder: Path) -> Iterator[tuple[Stage, RunResult]]:
        """Judge the story after each of its stages."""
        story = Story()
        for number, stage in enumerate(self.stages):
            story = take(story, stage.steps)
            yield stage, story.check(folder / str(number))

    def check(self, folder: Path) -> None:
        """Judge the story, and compare every field that it states."""
        for number, (stage, result) in enumerate(self.results(folder)):
            where = f"stories/{self.file}.txt, {self.name!r}, stage {number + 1}"
            now = observed(result, stage.expected)
            other = {field: now[field] for field in now if now[field] != stage.expected[field]}
            assert not other, f"{where}: the checker says {other}"
            assert not any("failed" in problem for problem in result.problems), where


def atom(text: str) -> Any:
    """Return a word as the value that it stands for; anything but a literal is a string."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def value(text: str) -> Any:
    """Return an argument: `a,b` and `1:2` are tuples, and `1:0,3:2` is a tuple of tuples."""
    if "," in text:
        return tuple(value(part) for part in text.split(",") if part)
    return tuple(map(atom, text.split(":"))) if ":" in text else atom(text)


def take(story: Scene, steps: Sequence[str]) -> Scene:
    """Take the steps of a stage, which are methods of a story or of another stage."""
    for step in steps:
        verb, *words = step.split()
        if verb == "on":
            story = type(story)(*words)
            continue
        named = [re.match(r"[a-z_]+=", word) for word in words]
        plain = [value(w) for w, name in zip(words, named, strict=True) if not name]
        by_name = {
            name[0][:-1]: value(word.removeprefix(name[0]))
            for word, name in zip(words, named, strict=True)
            if name
        }
        getattr(story, verb)(*plain, **by_name)
    return story


def observed(result: RunResult, stated: Expected) -> Expected:
    """Return what a result says of each field that is stated, in the form of the text."""
    bad = [a for a in result.anomalies if a.verdict is Verdict.INVALID]
    allowed = [a for a in result.anomalies if a.allowed]
    lacking = [a for a in result.anomalies if a.verdict is Verdict.NOT_EXERCISED]
    unknown = [p for p in result.properties if p.verdict is Verdict.UNKNOWN]
    examined = {p.property: p.examined for p in result.properties}
    of = [line.split(maxsplit=1)[0] for line in stated.get("says", [])]
    sentences = {p.property: p.reason for p in result.properties}
    sentences |= {a.name: a.message for a in reversed(result.anomalies)}
    asked = [line.split()[0] for line in stated.get("examined", [])]
    fields = {
        "finds": [_counted(bad)],
        "allows": [_counted(allowed)],
        "lacks": [", ".join(sorted({a.name for a in lacking})) or "nothing"],
        "unknown": [", ".join(p.property for p in unknown) or "nothing"],
        "verdict": [str(result.verdict)],
        "examined": [f"{name} {examined[name]}" for name in asked],
        "shows": [", ".join(map(_shown, (bad or allowed)[0].witnesses)) if bad or allowed else ""],
        "says": [f"{name} {sentences.get(name, '')}" for name in of],
        "sentence": [result.sentence],
    }
    return {field: fields[field] for field in stated}


def _counted(anomalies: list[Anomaly]) -> str:
    """Return the anomalies with their counts and first offsets."""
    counts: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], int] = {}
    for each in anomalies:
        key = each.name, "" if each.partition in ("", P) else f" in {each.partition}"
        counts[key] = counts.get(key, 0) + each.count
        first.setdefault(key, -1 if each.offset is None else each.offset)
    told = [
        f"{name} {count}" + (f" @{first[name, where]}" if first[name, where] >= 0 else "") + where
        for (name, where), count in sorted(counts.items())
    ]
    return ", ".join(told) or "nothing"


def _shown(witness: Any) -> str:
    at = "" if witness.offset is None or witness.offset < 0 else f"@{witness.offset}"
    of = f"op {witness.op}" if witness.op is not None and witness.op >= 0 else witness.node
    return f"{of}{at}"


def stories(*files: str) -> list[Told]:
    names = files or sorted(path.stem for path in FOLDER.glob("*.txt"))
    return [told for name in names for told in read(name)]


def read(name: str) -> Iterator[Told]:
    """Read the stories of a file."""
    known: dict[str, tuple[str, ...]] = {}
    blocks = ("\n" + _text(name)).split("\n# ")
    for line in blocks[0].splitlines():
        if line.startswith("let "):
            _, macro, steps = line.split(" ", 2)
            known[macro] = tuple(steps_of(steps, known))
    for block in blocks[1:]:
        title, *lines = block.splitlines()
        yield Told(name, title, tuple(_stages(lines, known)))


def blocks(file: Path) -> dict[str, list[str]]:
    """Return the lines of each block of a file by its title (`# TITLE`), without comments."""
    found = {}
    for block in ("\n" + file.read_text("utf-8")).split("\n# ")[1:]:
        title, *lines = block.splitlines()
        found[title] = [line for line in lines if line and not line.startswith("//")]
    return found


def steps_of(line: str, known: Mapping[str, tuple[str, ...]] = NO_STEPS) -> Iterator[str]:
    """Return the steps of a line, the names of `let` replaced."""
    for step in filter(None, map(str.strip, line.split(";"))):
        yield from known.get(step, (step,))


def _stages(lines: list[str], known: dict[str, tuple[str, ...]]) -> Iterator[Stage]:
    steps: list[str] = []
    expected: Expected = {}
    field = ""
    for line in filter(None, map(str.rstrip, lines)):
        first, _, text = line.partition(" ")
        if line.startswith("//"):
            continue
        if line.startswith("  "):
            expected[field][-1] += " " + line.strip()
        elif first in FIELDS:
            field = first
            expected.setdefault(field, []).append(text)
        else:
            if expected:
                yield Stage(tuple(steps), expected)
                steps, expected = [], {}
            steps += steps_of(line, known)
    yield Stage(tuple(steps), expected)


def update(name: str) -> str:
    """Return the text of a file with the sentences that the checker says today."""
    text = (FOLDER / f"{name}.txt").read_text()
    for told in read(name):
        with tempfile.TemporaryDirectory() as folder:
            for stage, result in told.results(Path(folder)):
                now = observed(result, stage.expected)
                for field in PROSE:
                    text = _replaced(text, told.name, field, stage.expected, now)
    return text


def _replaced(text: str, name: str, field: str, was: Expected, now: Expected) -> str:
    if was.get(field) == now.get(field):
        return text
    head, title, rest = f"\n{text}".partition(f"\n# {name}\n")
    old, new = (wrapped(field, lines[field]) for lines in (was, now))
    assert old in rest, f"{name}: its lines of {field} are not wrapped as --update wraps them"
    return (head + title + rest.replace(old, new, 1))[1:]


def wrapped(field: str, lines: list[str]) -> str:
    return "".join(
        textwrap.fill(f"{field} {line}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        for line in lines
    )


def main(arguments: list[str]) -> int:
    """Write the sentences again, or say which files have others; 1 if one has."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.checker.story_text")
    parser.add_argument("--update", action="store_true", help="write the sentences again")
    given = parser.parse_args(arguments)
    names = sorted(path.stem for path in FOLDER.glob("*.txt"))
    changed = {name: text for name in names if (text := update(name)) != _text(name)}
    for name, text in changed.items():
        what = "is written" if given.update else "differs: run with --update"
        sys.stdout.write(f"{name}.txt {what}\n")
        if given.update:
            (FOLDER / f"{name}.txt").write_text(text)
    return int(bool(changed) and not given.update)


def _text(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
