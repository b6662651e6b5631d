"""The core is a function: same inputs, same effects, in any process; and it reaches for nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CORE = sorted((ROOT / "node" / "core").glob("*.py"))

STORM = """
import hashlib, json
from tests.support.broker_storm import CONDITIONS, Storm
storm = Storm(7, CONDITIONS["all of it, three voters"])
storm.run(12)
world = storm.world
received = [(source, repr(message), repr(body)) for source, message, body in world.mail]
disks = {n: (d.logs, d.values) for n, d in world.disks.items()}
seen = repr((world.trace, received, disks, world.sent, world.now_us))
print(len(world.trace), hashlib.sha256(seen.encode()).hexdigest())
"""


def storm_in_a_process(hash_seed: int) -> str:
    path = os.pathsep.join([str(ROOT)])
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", STORM],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    first, second = storm_in_a_process(1), storm_in_a_process(2)
    assert first == second
    assert int(first.split()[0]) > 500, "a run in which nothing happens proves nothing"


STANDARD = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "msgspec",
    "re",
    "struct",
    "typing",
    "zlib",
}


def imported(path: Path) -> set[str]:
    found = set()
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            assert one.level == 0
            found.add(one.module or "")
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_imports_nothing_that_has_a_clock_a_socket_or_luck(path: Path) -> None:
    for name in imported(path):
        ours = name.startswith("node.core") or ".formats" in name
        assert ours or name.partition(".")[0] in STANDARD, name


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_has_no_order_that_depends_on_hashes_or_addresses(path: Path) -> None:
    """No set is iterated over, no `id()` or `hash()` is asked for, no float is time."""
    refused = {"id", "hash", "open", "print", "input", "float"}
    if path.name == "snapshot.py":
        # Two references to one part: an identity becomes the number of its first appearance.
        refused.remove("id")
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
            assert one.func.id not in refused, one.lineno
        loops = one.iter if isinstance(one, ast.For | ast.comprehension) else None
        assert not isinstance(loops, ast.Set | ast.SetComp), path
        if isinstance(loops, ast.Call) and isinstance(loops.func, ast.Name):
            assert loops.func.id not in ("set", "frozenset"), path
        assert not (isinstance(one, ast.Constant) and isinstance(one.value, float)), one.lineno
