"""Storms of each kind of fault alone, under every protocol, in both worlds.

    python -m tests.lab.each_fault --table FILE [--worlds simulated,real] [--kinds A,B] [--storms 5]

A storm is wrong if a property is broken that the protocol's row says holds, though the faults are
within the promise: a verdict of invalid counts only what the promise does not allow. A kind that no
storm of a protocol exercises is wrong too. Kinds that are never drawn say why, and a kind that this
machine or this system cannot carry out says so. With `--table` each result is a line of the file,
and storms that the file has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from harness.runs.options import RunRequest, to_schedule
from harness.sim.run import simulate
from nemesis.faults.kind import KINDS
from node.core import protocol
from node.formats.errors import UsageError
from tests.support.paths import ROOT

WORLDS: Final = ("simulated", "real")
TIME_LIMIT_S: Final = 8.0
FIRST_SEED: Final = 7100
LIMIT_S: Final = 400.0
EXERCISED, NOT_EXERCISED, BUSY, WRONG = "exercised", "not-exercised", "too busy", "wrong"


class Storm(NamedTuple):
    """One storm to be run."""

    world: str
    kind: str
    protocol: str
    seed: int

    def __str__(self) -> str:
        return f"{self.world} {self.kind} {self.protocol} {self.seed}"


def drawn_kinds() -> list[str]:
    """Return the kinds of faults that storms draw."""
    return [name for name, kind in KINDS.items() if not isinstance(kind.drawing, str)]


def storms(worlds: list[str], kinds: list[str], count: int) -> list[Storm]:
    """Return all storms, those with the first seed first."""
    return [
        Storm(world, kind, name, FIRST_SEED + number)
        for number in range(count)
        for world in worlds
        for kind in kinds
        for name in protocol.REGISTRY
    ]


def run(storm: Storm) -> tuple[str, str]:
    """Run a storm; return its outcome, and a sentence about it."""
    request = RunRequest(
        faults=storm.kind, protocol=storm.protocol, seed=storm.seed, time_limit=TIME_LIMIT_S
    )
    try:
        schedule = to_schedule(request)
    except UsageError as error:
        return "impossible", str(error)
    if storm.world == "real":
        return _real(storm)
    result = simulate(schedule, seed=storm.seed, stop_at="never")
    return outcome(storm, str(result.verdict), result.broken, [], result.sentence)


def _real(storm: Storm) -> tuple[str, str]:
    """Run a storm of real processes by the command, in a folder of its own."""
    words = ["--faults", storm.kind, "--protocol", storm.protocol, "--seed", str(storm.seed)]
    words += ["--time-limit", str(TIME_LIMIT_S), "--no-spark", "--no-report", "--quiet", "--json"]
    with tempfile.TemporaryDirectory(prefix="floodmark-each-") as place:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli", "run", *words],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
        if not done.stdout:
            return WRONG, f"code {done.returncode}: {done.stderr[-300:]}"
        said = json.loads(done.stdout)
        info = json.loads((Path(place) / said["path"] / "run.json").read_text())
    result = said["result"]
    broken = tuple(p["property"] for p in result["properties"] if p["verdict"] == "invalid")
    problems = [each["kind"] for each in info["problems"]]
    return outcome(storm, result["verdict"], broken, problems, result["sentence"])


def outcome(
    storm: Storm, verdict: str, broken: tuple[str, ...], problems: list[str], sentence: str
) -> tuple[str, str]:
    """Return what a verdict is worth, with its sentence."""
    holds = dict(protocol.REGISTRY[storm.protocol].expected)
    if verdict == "invalid":
        # A property without a row, such as that of processes that end, holds under all protocols.
        wrong = [name for name in broken if holds.get(name, "holds") == "holds"]
        return (WRONG, sentence) if wrong or not broken else (EXERCISED, sentence)
    if verdict == "valid":
        return EXERCISED, ""
    if verdict == "unknown":
        return (BUSY if problems == ["too-busy"] else WRONG), sentence
    return NOT_EXERCISED, sentence


def never_exercised(done: dict[str, str]) -> list[str]:
    """Return the kinds, with world and protocol, that no storm exercised."""
    found: dict[tuple[str, ...], set[str]] = {}
    for storm, result in done.items():
        found.setdefault(tuple(storm.split()[:3]), set()).add(result)
    return [" ".join(key) for key, results in found.items() if results == {NOT_EXERCISED}]


def main() -> int:
    """Run the storms, print a table; exit code 1 if one was wrong or a kind not exercised."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", type=Path)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--kinds", default=",".join(drawn_kinds()))
    parser.add_argument("--storms", type=int, default=5)
    given = parser.parse_args()
    for name, kind in KINDS.items():
        if isinstance(kind.drawing, str):
            print(f"{name} is never drawn: {kind.drawing}")
    done = _read(given.table)
    for storm in storms(given.worlds.split(","), given.kinds.split(","), given.storms):
        if str(storm) in done:
            continue
        result, sentence = run(storm)
        done[str(storm)] = result
        line = f"{storm}: {result} {' '.join(sentence.split())[:300]}".rstrip() + "\n"
        print(line, end="", flush=True)
        if given.table:
            with given.table.open("a") as table:
                table.write(line)
    counts: dict[str, Counter[str]] = {}
    for about, result in done.items():
        world, kind = about.split()[:2]
        counts.setdefault(f"{world} {kind}", Counter())[result] += 1
    for about, found in counts.items():
        print(f"{about:24} {dict(found)}")
    lacking = never_exercised(done)
    print(f"never exercised: {lacking}")
    return int(WRONG in done.values() or bool(lacking))


def _read(table: Path | None) -> dict[str, str]:
    """Return the results that a table has."""
    found = {}
    for line in table.read_text().splitlines() if table and table.exists() else []:
        about, result = line.split(": ", 1)
        found[about] = result.split(" ")[0] if not result.startswith(BUSY) else BUSY
    return found


if __name__ == "__main__":
    raise SystemExit(main())
