"""Random one-line changes to the sources, and whether the tests notice them.

    python -m tests.lab.mutate draw --tree DIR --tree DIR --seed 27 > MUTANTS
    python -m tests.lab.mutate probe MUTANTS --tree DIR --hits HITS
    python -m tests.lab.mutate run MUTANTS --tree DIR --hits HITS --results FILE [--whole]
    python -m tests.lab.mutate table FILE FILE

`draw` takes mutants whose lines all trees have. `probe` runs the first tier once, and notes which
tests come by each mutant. `run` copies a tree, changes one line at a time and runs these tests, the
quickest first, until one fails; with --whole those that survived get all of them, and the tests of
their package. It skips what FILE has, so it can be stopped and started again."""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.paths import ROOT

PARTS: Final = ("node/core", "nemesis", "harness/runs", "harness/clients", "checker/ingest")
MARKS: Final = "not integration and not nightly"
BUDGET_S: Final = 25.0
LONGEST_S: Final = 1500
PLUGIN: Final = "mutation_probe"
COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_NAME: Final = {
    "OK": "INFO",
    "INFO": "FAIL",
    "FAIL": "OK",
    "READ_OK": "READ_OTHER",
    "READ_FINAL": "READ_OK",
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "first": "last",
    "last": "first",
    "all": "any",
    "any": "all",
    "invoke_us": "complete_us",
    "complete_us": "invoke_us",
}
OTHER_TEXT: Final = {"left": "right", "right": "left"}


PROBE: Final = """
import json, os
ORDER, TIMES, seen, took = os.environ.get("MUTATE_ORDER"), os.environ.get("MUTATE_HITS"), set(), {}
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (number, test) not in seen:
        seen.add((number, test))
        with open(TIMES, "a") as file:
            file.write(json.dumps([number, test]) + "\\n")
def pytest_collection_modifyitems(items):
    if ORDER:
        order = {test: n for n, test in enumerate(json.load(open(ORDER)))}
        items[:] = sorted((i for i in items if i.nodeid in order), key=lambda i: order[i.nodeid])
def pytest_runtest_logreport(report):
    took[report.nodeid] = took.get(report.nodeid, 0) + report.duration
    if TIMES and report.when == "teardown":
        with open(TIMES, "a") as file:
            file.write(json.dumps([took[report.nodeid], report.nodeid, "s"]) + "\\n")
"""
"""A plug-in of pytest that notes which tests come by a probe, or runs a choice of tests."""


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
        for old, new in [*changes(node), *coarse_changes(node)]:
            number = old.lineno - 1
            if old.end_lineno == old.lineno:
                line, now = lines[number], replaced(text, old, new).splitlines()[number]
                yield Mutant(file, line, now, lines[:number].count(line))


Part = ast.expr | ast.stmt


def changes(node: ast.AST) -> Iterator[tuple[Part, Part]]:
    """Yield the small changes to one node: the part of it that changes, and what stands there."""
    match node:
        case ast.Compare(ops=[op, *others]) if other := COMPARISONS.get(type(op)):
            yield node, _with(node, ops=[other(), *others])
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield from ((node, left), (node, right))
        case ast.BinOp(op=ast.Add() | ast.Sub() as op) if not _is_text(node):
            yield node, _with(node, op=ast.Sub() if isinstance(op, ast.Add) else ast.Add())
        case ast.BoolOp(values=[*kept, _]):
            yield node, kept[0] if len(kept) == 1 else _with(node, values=kept)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield node, operand
        case ast.AugAssign():
            yield node, ast.Pass()
        case ast.If(test=test, orelse=[]):
            yield test, ast.Constant(False)
        case ast.Attribute(attr=name) if other := OTHER_NAME.get(name):
            yield node, _with(node, attr=other)
        case ast.Name(id=name) if other := OTHER_NAME.get(name):
            if name.isupper() or name in ("min", "max", "any", "all"):
                yield node, ast.Name(other)
        case ast.Constant(value=str(text)) if other := OTHER_TEXT.get(text):
            yield node, ast.Constant(other)


def coarse_changes(node: ast.AST) -> Iterator[tuple[Part, Part]]:
    """Yield the changes that are made outside the checks only."""
    match node:
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield node, ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()):
            yield node, ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, ast.Constant(None)


def _with(node: Any, **fields: Any) -> Any:
    """Return a node with other fields."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr | ast.List | ast.Dict) for n in ast.walk(node))


def replaced(text: str, old: Part, new: Part) -> str:
    """Return a source with `new` in the place of `old`."""
    lines = text.splitlines(keepends=True)
    before, after = "".join(lines[: old.lineno - 1]), "".join(lines[old.end_lineno or 0 :])
    first, last = (lines[at - 1].encode() for at in (old.lineno, old.end_lineno or 0))
    word = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
    around = first[: old.col_offset].decode(), last[old.end_col_offset :].decode()
    return f"{before}{around[0]}{word}{around[1]}{after}"


def draw(seed: int, count: int, trees: Sequence[Path]) -> list[Mutant]:
    """Return as many mutants of each part of the sources, which all trees have."""
    rng = random.Random(seed)
    parts = []
    for number, part in enumerate(PARTS):
        share = (count * (number + 1)) // len(PARTS) - (count * number) // len(PARTS)
        found = [
            mutant
            for file in sorted((trees[0] / part).rglob("*.py"))
            for mutant in mutants_of(str(file.relative_to(trees[0])), file.read_text())
            if all(is_whole(source_with(tree, mutant)) for tree in trees)
        ]
        parts.append(rng.sample(found, share))
    # Parts alternate, so that the first results already speak of all of them.
    return [mutant for row in zip_longest(*parts) for mutant in row if mutant is not None]


def source_with(tree: Path, mutant: Mutant) -> str | None:
    """Return the file of a mutant with it in it, or None if a tree lacks the line."""
    file = tree / mutant.file
    lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    places = [number for number, line in enumerate(lines) if line == mutant.was]
    if len(places) <= mutant.nth:
        return None
    lines[places[mutant.nth]] = mutant.now
    return "\n".join(lines)


def is_whole(text: str | None) -> bool:
    """Return whether a source can be compiled."""
    try:
        return text is not None and bool(compile(text, "mutant", "exec"))
    except SyntaxError:
        return False


def with_probes(text: str, mutants: dict[int, Mutant]) -> str:
    """Return a source with a probe before the statement of each mutant inside a function."""
    lines = text.split("\n")
    statements = [
        (statement.lineno, statement.col_offset, statement.end_lineno)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function
        # Not before `elif`, nor before a docstring.
        if lines[statement.lineno - 1][statement.col_offset :][:4] not in ("elif", '"""')
    ]
    probes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, mutant in mutants.items():
        line = [n for n, each in enumerate(lines, 1) if each == mutant.was][mutant.nth]
        around = [(at, column) for at, column, end in statements if at <= line <= (end or at)]
        if around:
            probes[max(around)].append(number)
    for (at, column), numbers in sorted(probes.items(), reverse=True):
        hits = "; ".join(f"{PLUGIN}.hit({number})" for number in numbers)
        lines.insert(at - 1, f"{' ' * column}import {PLUGIN}; {hits}")
    return "\n".join(lines)


class Copy:
    """A copy of a tree whose sources change, and its tests."""

    def __init__(self, tree: Path, folder: str) -> None:
        self.tree, self.folder = tree, Path(folder) / "tree"
        shutil.copytree(tree, self.folder, ignore=shutil.ignore_patterns(".venv", "store", "build"))
        (self.folder / f"{PLUGIN}.py").write_text(PROBE)

    def pytest(self, *words: str, **environment: str) -> bool:
        """Run tests; return whether all pass in time."""
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
        run = subprocess.Popen(
            [*command, "-p", PLUGIN, "--deselect", "tests/test_project.py", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            # 5: there is no such test.
            return run.wait(LONGEST_S) in (0, 5)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return run.wait() == 0

    def survives(self, mutant: Mutant, tests: list[str], whole: bool) -> bool:
        """Return whether no test notices a mutant."""
        file = self.folder / mutant.file
        original = file.read_text()
        file.write_text(source_with(self.tree, mutant) or original)
        order = self.folder / "order.json"
        order.write_text(json.dumps(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        part = next(part for part in PARTS if mutant.file.startswith(f"{part}/"))
        try:
            if tests and not self.pytest("-x", "-m", MARKS, *files, MUTATE_ORDER=str(order)):
                return False
            return not whole or self.pytest("-x", "-m", "not nightly", f"tests/{part}")
        finally:
            file.write_text(original)


def probe(mutants: list[Mutant], tree: Path, hits: Path) -> None:
    """Run the first tier of a tree with probes."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(tree, folder)
        for name in {mutant.file for mutant in mutants}:
            own = {number: each for number, each in enumerate(mutants) if each.file == name}
            file = copy.folder / name
            file.write_text(with_probes(file.read_text(), own))
        copy.pytest("-m", MARKS, MUTATE_HITS=str(hits.resolve()))


def covering(hits: Path, number: int, budget_s: float) -> list[str]:
    """Return the tests that come by a mutant, the quickest first, for so many seconds."""
    rows = list(map(json.loads, hits.read_text().splitlines()))
    times = {row[1]: row[0] for row in rows if len(row) == 3}
    known = sorted({row[1] for row in rows if row[0] == number and len(row) == 2} & times.keys())
    chosen, total_s = list[str](), 0.0
    for test in sorted(known, key=times.__getitem__):
        total_s += times[test]
        if chosen and total_s > budget_s:
            break
        chosen.append(test)
    return chosen


def run_all(mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Judge the mutants that the file of results lacks, or with --whole those that survived."""
    known = read_results(options.results)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(options.tree.resolve(), folder)
        for number, mutant in enumerate(mutants):
            before = known.get(mutant)
            if before is not None and (before != "survived" or not options.whole):
                continue
            tests = covering(options.hits, number, LONGEST_S if options.whole else BUDGET_S)
            found = "survived" if copy.survives(mutant, tests, options.whole) else "killed"
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*mutant, found]) + "\n")


def read_results(results: Path) -> dict[Mutant, str]:
    """Return the verdicts of a file of results, by mutant."""
    if not results.exists():
        return {}
    rows = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {Mutant(*row[:4]): row[4] for row in rows}


def table(before: dict[Mutant, str], after: dict[Mutant, str]) -> str:
    """Format the kills of two trees by part of the sources, for the mutants of both."""
    both = [mutant for mutant in before if mutant in after]
    rows = ["| part | mutants | killed before | killed after |", "|---|--:|--:|--:|"]
    for part in (*PARTS, ""):
        of_part = [mutant for mutant in both if mutant.file.startswith(part)]
        kills = [sum(tree[m] == "killed" for m in of_part) for tree in (before, after)]
        rows.append(f"| {part or 'all'} | {len(of_part)} | {kills[0]} | {kills[1]} |")
    lost = [m for m in both if before[m] == "killed" and after[m] == "survived"]
    return "\n".join([*rows, *(f"not killed any more: {m.file}: {m.now.strip()}" for m in lost)])


def main() -> None:
    """Carry out one of the four commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("command", choices=("draw", "probe", "run", "table"))
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--tree", type=Path, action="append")
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--hits", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    trees = [tree.resolve() for tree in options.tree or [ROOT]]
    options.tree = trees[0]
    if options.command == "draw":
        print(json.dumps(draw(options.seed, options.count, trees), indent=0))
    elif options.command == "table":
        print(table(*map(read_results, options.files)))
    else:
        mutants = [Mutant(*row) for row in json.loads(options.files[0].read_text())]
        if options.command == "probe":
            probe(mutants, options.tree, options.hits)
        else:
            run_all(mutants, options)


if __name__ == "__main__":
    main()
