"""Storms of each kind of fault alone, under every protocol, in both worlds.

A storm is wrong if a property is broken that the protocol's row says holds, though the faults are
within the promise: a verdict of invalid counts only what the promise does not allow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from harness.runs.options import RunRequest, to_schedule
from harness.sim.run import simulate
from nemesis.faults.kind import KINDS
from node.core import protocol
from node.formats.errors import UsageError
from tests.support.paths import ROOT

TIME_LIMIT_S: Final = 8.0
LIMIT_S: Final = 400.0
EXERCISED, NOT_EXERCISED, BUSY, WRONG = "exercised", "not-exercised", "too busy", "wrong"


class Storm(NamedTuple):
    """One storm to be run."""

    world: str
    kind: str
    protocol: str
    seed: int


def drawn_kinds() -> list[str]:
    """Return the kinds of faults that storms draw."""
    return [name for name, kind in KINDS.items() if not isinstance(kind.drawing, str)]


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
