"""Storms from two tables, and whether the verdict of each is right.

`each` has every kind of fault alone, under every protocol, with five seeds. `pairs` has a covering
array of the options of `run`: every pair of their values that can go together is in one storm.

A verdict of invalid is wrong where the protocol's row says that the property holds, because a
verdict counts only what the promise does not allow. Storms of other systems that are invalid are
listed, to be looked at. A verdict of unknown is wrong unless the machine was too busy."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Final

from harness.runs.options import RunRequest, to_schedule
from harness.sim.run import simulate
from nemesis.faults.kind import KINDS
from node.core import protocol
from node.formats.errors import UsageError
from node.formats.owned_folder import OwnedFolder
from tests.support.paths import ROOT

LIMIT_S: Final = 400.0
EXERCISED, NOT_EXERCISED, BUSY, WRONG = "exercised", "not-exercised", "too busy", "wrong"
LOOK: Final = "to be looked at"
Options = Mapping[str, str]
Value = tuple[str, str]

WORDS: Final = {"system", "protocol", "faults", "acks", "flush", "links", "disk"}  # no numbers
# The first value of an option is its default, and "" is not given.
FACTORS: Final[dict[str, tuple[str, ...]]] = {
    "system": ("", "etcd", "nats", "pysyncobj", "redis"),
    "protocol": ("", *(name for name in protocol.REGISTRY if name != "kafka")),
    "faults": ("none", "kill", "power-cut", "pause", "partition", "loss", "disk", "clock", "all"),
    "brokers": ("", "1", "2", "5"),
    "voters": ("", "3", "5"),
    "partitions": ("", "1", "50"),
    "replication_factor": ("", "1", "2"),
    "min_isr": ("", "1", "3"),
    "retention_records": ("", "100"),
    "fetch_max_bytes": ("", "300"),
    "acks": ("", "0", "1"),
    "clients": ("", "1", "20"),
    "consumers": ("", "1"),
    "rate": ("", "0", "500"),
    "batch": ("", "1", "500"),
    "idempotent": ("", "true"),
    "flush": ("", "async", "async:50"),
    "links": ("", "none", "proxy"),
    "disk": ("", "plain", "user-space"),
}


def drawn_kinds() -> list[str]:
    """Return the kinds of faults that storms draw."""
    return [name for name, kind in KINDS.items() if not isinstance(kind.drawing, str)]


def each_kind() -> list[Options]:
    """Return a storm for each kind of fault, protocol and seed."""
    return [
        {"faults": kind, "protocol": name, "seed": str(seed), "time_limit": "8"}
        for kind, name, seed in product(drawn_kinds(), protocol.REGISTRY, range(1, 6))
    ]


def pairs_of_options(seed: int = 1) -> list[Options]:
    """Return storms in which every pair of values of options that can go together is."""
    rng = random.Random(seed)
    left = {
        frozenset(((one, a), (other, b)))
        for one, other in combinations(FACTORS, 2)
        for a, b in product(FACTORS[one], FACTORS[other])
    }
    rows: list[Options] = []
    while left:
        # The order of a set differs by process, and the draw must not.
        pair = dict(min(left, key=sorted))
        left.remove(frozenset(pair.items()))
        if possible(pair):
            row = drawn_row(pair, left, rng)
            left -= pairs(row)
            rows.append(_given(row) | {"time_limit": "6", "seed": str(len(rows) + 1)})
    return rows


def pairs(row: Options) -> set[frozenset[Value]]:
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def drawn_row(begun: Options, left: set[frozenset[Value]], rng: random.Random) -> Options:
    """Return a possible row with the values of `begun` and many pairs that are left."""
    row = dict(begun)
    for name in rng.sample([*FACTORS], len(FACTORS)):
        new = {
            value: sum(frozenset(((name, value), each)) in left for each in row.items())
            for value in rng.sample(FACTORS[name], len(FACTORS[name]))
        }
        values = sorted(new, key=lambda value: -new[value]) if name not in row else [row[name]]
        row[name] = next(value for value in values if possible({**row, name: value}))
    return row


def possible(row: Options) -> bool:
    """Return whether `run` takes these options."""
    try:
        to_schedule(request_of(_given(row)))
    except UsageError:
        return False
    return True


def _given(row: Options) -> dict[str, str]:
    return {name: value for name, value in row.items() if value}


def request_of(options: Options) -> RunRequest:
    """Return options as the command has them."""
    given = {"seed": "1", **options}
    return RunRequest(**{n: v if n in WORDS else json.loads(v) for n, v in given.items()})


def words_of(options: Options) -> list[str]:
    """Return options as somebody types them."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        words += [option] if value == "true" else [option, value]
    return words


def run_storm(options: Options, world: str) -> tuple[str, str]:
    """Run a storm; return its outcome, and a sentence about it."""
    try:
        schedule = to_schedule(request_of(options))
    except UsageError as error:
        return "impossible", str(error)
    if world == "simulated":
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
        return outcome(options, str(result.verdict), result.broken, [], result.sentence)
    words = [*words_of(options), "--no-spark", "--no-report", "--quiet", "--json"]
    with OwnedFolder() as place:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli", "run", *words],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
        if not done.stdout or "Traceback" in done.stderr:
            return WRONG, f"code {done.returncode}: {done.stderr[-300:]}"
        said = json.loads(done.stdout)
        info = json.loads((Path(place) / said["path"] / "run.json").read_text())
    result = said["result"]
    broken = tuple(p["property"] for p in result["properties"] if p["verdict"] == "invalid")
    problems = [each["kind"] for each in info["problems"]]
    return outcome(options, result["verdict"], broken, problems, result["sentence"])


def outcome(
    options: Options, verdict: str, broken: Sequence[str], problems: list[str], sentence: str
) -> tuple[str, str]:
    """Return what a verdict is worth, with its sentence."""
    holds = dict(protocol.REGISTRY[options.get("protocol", "kafka")].expected)
    if verdict == "invalid" and options.get("system"):
        return LOOK, sentence
    if verdict == "invalid":
        # A property without a row, such as that of processes that end, holds under all protocols.
        wrong = [name for name in broken if holds.get(name, "holds") == "holds"]
        return (WRONG if wrong or not broken else EXERCISED), sentence
    if verdict == "unknown":
        return (BUSY if problems == ["too-busy"] else WRONG), sentence
    return (EXERCISED if verdict == "valid" else NOT_EXERCISED), sentence


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("table", choices=("each", "pairs"))
    parser.add_argument("--world", choices=("real", "simulated"), default="real")
    parser.add_argument("--first", type=int, help="how many rows to run")
    parser.add_argument("--results", type=Path, help="a line for each row; rows there are not run")


def run(given: argparse.Namespace) -> int:
    """Run the storms of a table; return 1 if a verdict was wrong."""
    rows = each_kind() if given.table == "each" else pairs_of_options()
    known = given.results.read_text().splitlines() if given.results.exists() else []
    found = {json.dumps(row[:2]): row[2] for row in map(json.loads, known)}
    for options in rows[: given.first]:
        key = json.dumps([given.world, options])
        if key not in found:
            found[key], sentence = run_storm(options, given.world)
            with given.results.open("a") as file:
                file.write(json.dumps([given.world, options, found[key], sentence]) + "\n")
            print(f"{found[key]}: {' '.join(words_of(options))}: {sentence}", flush=True)
    counts = Counter(found.values())
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return int(counts[WRONG] > 0)
