"""One `floodmark run` in a folder of its own, and the traces of all its nodes as one story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node.formats.trace import matches
from tests.support.paths import ROOT

Event = dict[str, Any]


def run(folder: Path, *words: str) -> Path:
    """Run it without Spark and page; the verdict must be valid. Returns the run folder."""
    more = ["--name", "run", "--no-spark", "--no-report", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "run", *words, *more],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)["result"]
    assert (result["verdict"], done.returncode) == ("valid", 0), result["sentence"]
    return (folder / "store" / "run" / "latest").resolve()


def lines(file: Path) -> list[Event]:
    """A file of JSON lines."""
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def trace(folder: Path) -> list[Event]:
    """What all nodes of a run did, by time.

    A broker reads its clock after its mail, so an effect on another node is never before its cause.
    """
    found = [event for file in (folder / "trace").iterdir() for event in lines(file)]
    return sorted(found, key=lambda event: int(event["t_us"]))


class Reader:
    """Reads a story from its beginning: each look goes on where the one before found something."""

    def __init__(self, events: list[Event]) -> None:
        self._rest: Iterator[Event] = iter(events)
        self._told: list[str] = []

    def then(self, what: str, event: str, **pattern: Any) -> Event:
        """The next event of that name that fits (`node.formats.trace.matches`); `what` names the
        stage."""
        wanted = {"event": event, **pattern}
        for each in self._rest:
            if matches(each, wanted):
                self._told.append(f"{what}: {each}")
                return each
        raise AssertionError("\n".join([*self._told, f"{what}: no {wanted} after that"]))
