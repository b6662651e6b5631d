"""Random one-line changes to the sources, and whether the first two tiers notice them.

    python -m tests.lab.mutate draw --seed 1 --count 150 > mutants.json
    python -m tests.lab.mutate run mutants.json --tree DIR --results FILE [--marks EXPRESSION]
    python -m tests.lab.mutate table FILE FILE

`run` copies a tree, changes one line at a time and runs the tests that stand nearest to the changed
file until one fails. It skips what FILE has already, so it can be stopped and started again. Two
trees are compared by the same mutants: a line that one of them lacks counts for neither.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.paths import ROOT

NEAREST: Final = {
    "node/core": ("tests/node/core", "tests/harness/sim"),
    "nemesis": ("tests/nemesis", "tests/harness/sim"),
    "harness/runs": ("tests/harness/runs", "tests/harness/systems/external"),
    "harness/clients": ("tests/harness/clients", "tests/harness/sim"),
    "checker/ingest": ("tests/checker/ingest", "tests/checker/engine"),
}
LONGEST_S: Final = 300
COMPARISONS: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.BitAnd: "|", ast.BitOr: "&"}


class Mutant(NamedTuple):
    """One changed line: its file, its text before and after, and which of equal lines it is."""

    file: str
    was: str
    now: str
    nth: int


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield every small change to one line of a source."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        for start, end, new in changes(node):
            if start[0] != end[0]:
                continue
            line = lines[start[0] - 1]
            encoded = line.encode()
            now = (encoded[: start[1]] + new.encode() + encoded[end[1] :]).decode()
            if now != line:
                yield Mutant(file, line, now, lines[: start[0] - 1].count(line))


Place = tuple[int, int]


def changes(node: ast.AST) -> Iterator[tuple[Place, Place, str]]:
    """Yield the small changes to one node: from where to where, and what stands there then."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            yield ends(left), begins(right), f" {COMPARISONS[type(op)]} "
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield ends(left), begins(right), f" {OPERATORS[type(op)]} "
        case ast.BoolOp(op=op, values=[left, right]):
            other = "or" if isinstance(op, ast.And) else "and"
            yield ends(left), begins(right), f" {other} "
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield begins(node), begins(operand), ""
        case ast.Constant(value=bool(value)):
            yield begins(node), ends(node), str(not value)
        case ast.Constant(value=int(value)):
            yield begins(node), ends(node), str(value + 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield begins(node), ends(node), "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield begins(value), ends(value), "None"


def begins(node: Any) -> Place:
    """Return line and column (in bytes) of the first character of a node."""
    return node.lineno, node.col_offset


def ends(node: Any) -> Place:
    """Return line and column (in bytes) after the last character of a node."""
    return node.end_lineno, node.end_col_offset


def draw(seed: int, count: int) -> list[Mutant]:
    """Return as many mutants of each part of the sources, drawn by a seed."""
    rng = random.Random(seed)
    parts = []
    for number, part in enumerate(NEAREST):
        share = (count * (number + 1)) // len(NEAREST) - (count * number) // len(NEAREST)
        found = [
            mutant
            for file in sorted((ROOT / part).rglob("*.py"))
            for mutant in mutants_of(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
        ]
        parts.append(rng.sample(found, share))
    # Parts alternate, so that the first results already speak of all of them.
    return [mutant for row in zip_longest(*parts) for mutant in row if mutant is not None]


def changed(text: str, mutant: Mutant) -> str | None:
    """Return a source with the mutant in it, or None if it lacks the line."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if line == mutant.was]
    if len(places) <= mutant.nth:
        return None
    lines[places[mutant.nth]] = mutant.now
    return "\n".join(lines)


def verdict(tree: Path, mutant: Mutant, marks: str) -> str:
    """Return "killed", "survived" or "gone" (the tree lacks the line)."""
    file = tree / mutant.file
    original = file.read_text(encoding="utf-8") if file.exists() else ""
    text = changed(original, mutant)
    if text is None:
        return "gone"
    part = next(part for part in NEAREST if mutant.file.startswith(f"{part}/"))
    folders = [folder for folder in NEAREST[part] if (tree / folder).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadgroup"]
    file.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", "-m", marks, *folders],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return "survived" if run.wait(LONGEST_S) == 0 else "killed"
        except subprocess.TimeoutExpired:
            return "killed"
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait(LONGEST_S)
    finally:
        file.write_text(original, encoding="utf-8")


def run_all(mutants: list[Mutant], tree: Path, results: Path, marks: str) -> None:
    """Judge the mutants that a file of results lacks, one line for each."""
    known = read_results(results)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".venv", "store", "build"))
        for mutant in mutants:
            if mutant in known:
                continue
            line = json.dumps([*mutant, verdict(copy, mutant, marks)])
            with results.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def read_results(results: Path) -> dict[Mutant, str]:
    """Return the verdicts of a file of results, by mutant."""
    if not results.exists():
        return {}
    rows = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {Mutant(*row[:4]): row[4] for row in rows}


def table(before: dict[Mutant, str], after: dict[Mutant, str]) -> str:
    """Format the kills of two trees by part of the sources, for the mutants of both."""
    both = [
        mutant for mutant in before if "gone" not in (before[mutant], after.get(mutant, "gone"))
    ]
    rows = ["| part | mutants | killed before | killed after |", "|---|--:|--:|--:|"]
    for part in (*NEAREST, ""):
        of_part = [mutant for mutant in both if mutant.file.startswith(part)]
        kills = [sum(tree[m] == "killed" for m in of_part) for tree in (before, after)]
        rows.append(f"| {part or 'all'} | {len(of_part)} | {kills[0]} | {kills[1]} |")
    lost = [m for m in both if before[m] == "killed" and after[m] == "survived"]
    return "\n".join([*rows, *(f"not killed any more: {m.file}: {m.now.strip()}" for m in lost)])


def main() -> None:
    """Carry out one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--seed", type=int, default=1)
    drawing.add_argument("--count", type=int, default=150)
    running = commands.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("--tree", type=Path, default=ROOT)
    running.add_argument("--results", type=Path, required=True)
    running.add_argument("--marks", default="not nightly")
    comparing = commands.add_parser("table")
    comparing.add_argument("files", type=Path, nargs=2)
    options = parser.parse_args()
    match options.command:
        case "draw":
            print(json.dumps(draw(options.seed, options.count), indent=0))
        case "run":
            mutants = [Mutant(*row) for row in json.loads(options.mutants.read_text())]
            run_all(mutants, options.tree.resolve(), options.results, options.marks)
        case "table":
            print(table(*map(read_results, options.files)))


if __name__ == "__main__":
    main()
