"""Breaks the checks on purpose, one small change at a time: each must be noticed by a test.

    python -m tests.lab.check_mutants [--state FILE] [--minutes N] [FILE ...]

A mutant is one change to one function of the checker: a comparison that takes its border the other
way, half of a condition dropped, a negation or a whole step left out, another outcome, the other
end of a range. It is put in place of the running function, without importing anything again, and
the tests that reach the changed line are run until one fails: goldens, stories, and a fixed set of
random histories with what the slow definitions say of them. What only words a finding is left
alone. `--state` remembers what was found of unchanged functions, so that a second run is short."""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from tests.lab.check_killers import Killer, killers
from tests.lab.mutate import Part, changes, replaced
from tests.support.paths import ROOT

_NO_CHECKS = ("__init__.py", "cases.py", "findings.py", "registry.py")
TARGETS = (
    *(
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "checker/checks").glob("*.py"))
        if file.name not in _NO_CHECKS
    ),
    "checker/evidence/contents.py",
    "checker/output/policy.py",
)
_CASES = ("rows", "count", "allowed")
LONGEST_S = 10

# Functions, functions inside of others, and variables that only choose words and witnesses.
WORDING = (
    *("_instead", "_triage", "_words", "_record", "_places", "_by_time", "_source", "_witness"),
    *("_agreed_below", "_short_cycle", "_read", "_missing", "holders", "_seen", "_cases"),
    *("_of_vanished", "_of_failed", "_of_class", "_head"),
)
NESTED = (*WORDING, "shown", "pair", "words", "source", "newer", "due", "values", "_wrong", "name")
WORDS = {
    *("message", "messages", "witnesses", "witness", "case", "words", "opening", "came"),
    *("ends", "source", "text", "sides", "parties", "order", "nodes", "seen", "sent"),
    *("place", "where", "agreed", "when", "same", "first", "at", "at_offset", "waited"),
    *("which", "now", "then", "has", "should", "examined"),
}


class Mutant(NamedTuple):
    """One change: where, and a module of nothing but the function with it.

    `lines` are those of the statement that changes, `was` and `now` the function's text without and
    with the change."""

    file: str
    function: str
    tree: ast.Module
    lines: range
    was: str
    now: str


def judging(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all parts of it that do more than choose words and witnesses."""
    parts = ast.iter_child_nodes(node)
    match node:
        case ast.JoinedStr():
            return
        case ast.Assign(targets=targets):
            names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if (names and names <= WORDS) or _is_order(node):
                return
        case ast.For() if _gathers(node):
            return
        case ast.AugAssign(target=ast.Name(id=name)) if name in WORDS:
            return
        case ast.AnnAssign(value=value):
            parts = iter([value] if value else [])
        case ast.Call(func=ast.Name(id="Cases" | "Witness"), args=args, keywords=keywords):
            # The rows and count of cases matter, and what excuses them: the rest is words.
            parts = iter([*args[1:2], *(k.value for k in keywords if k.arg in _CASES)])
        case ast.FunctionDef(name=name) if name in NESTED:
            return
    yield node
    for part in parts:
        yield from judging(part)


def _is_order(node: ast.Assign) -> bool:
    """Return whether rows are only put in another order, which says whom a finding names first."""
    value, target = node.value, node.targets[0]
    return (
        isinstance(value, ast.Subscript)
        and ast.unparse(value.value) == ast.unparse(target)
        and ast.unparse(value.slice).startswith(("np.lexsort(", "np.argsort("))
    )


def _gathers(node: ast.stmt) -> bool:
    """Return whether a loop does nothing but gather witnesses and words."""
    if isinstance(node, ast.For):
        return all(_gathers(statement) for statement in node.body)
    return isinstance(node, ast.AugAssign) and ast.unparse(node.target) in WORDS


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function and method that does more than word things, by its qualified name."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith(WORDING):
                yield prefix + each.name, each


def mutants(file: str) -> Iterator[Mutant]:
    """Yield all mutants of one file."""
    text = (ROOT / file).read_text()
    for name, function in functions(ast.parse(text)):
        was = ast.unparse(function)
        parts = (part for statement in function.body for part in judging(statement))
        for old, new in (change for part in parts for change in changes(part)):
            changed = dict(functions(ast.parse(replaced(text, old, new))))[name]
            lines = _lines(function, old)
            yield Mutant(file, name, _alone(name, changed), lines, was, ast.unparse(changed))


def _lines(function: ast.FunctionDef, part: Part) -> range:
    """Return the lines of the innermost statement around a part, without those inside of it."""
    around = [n for n in ast.walk(function) if isinstance(n, ast.stmt) and _is_in(part, n)]
    inner = max(around, key=lambda n: (n.lineno, n.col_offset))
    body: list[ast.stmt] = getattr(inner, "body", [])
    return range(inner.lineno, max(body[0].lineno if body else _end(inner) + 1, inner.lineno + 1))


def _is_in(part: Part, node: ast.stmt) -> bool:
    return node.lineno <= part.lineno and _end(part) <= _end(node)


def _end(node: Part) -> int:
    return node.end_lineno or node.lineno


def _alone(name: str, function: ast.FunctionDef) -> ast.Module:
    """Return a module of one function, or of a class of one method."""
    node: ast.stmt = function
    if "." in name:
        node = ast.ClassDef(name.partition(".")[0], [], [], [function], [])
    later = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    return ast.fix_missing_locations(ast.Module([later, node], []))


def _code(code: CodeType, path: list[str]) -> CodeType:
    """Return the code of a function inside that of its module."""
    for name in path:
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code


def _running(module: Any, path: list[str]) -> FunctionType:
    """Return the function object that callers use."""
    found: Any = module
    for name in path:
        found = found.__dict__[name]
    found = getattr(found, "func", None) or getattr(found, "fget", None) or found
    found = getattr(found, "__wrapped__", found)
    assert isinstance(found, FunctionType), path
    return found


@contextlib.contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Put the mutant in the place of its original."""
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    path = mutant.function.split(".")
    function = _running(module, path)
    sound = function.__code__
    function.__code__ = _code(compile(mutant.tree, mutant.file, "exec"), path)
    try:
        yield
    finally:
        function.__code__ = sound


class _TooLong(Exception):
    pass


def _too_long(_: int, __: FrameType | None) -> None:
    raise _TooLong


def killed_by(mutant: Mutant, tests: list[Killer], luck: Counter[str]) -> str:
    """Return the test that notices the mutant, or "" for none; tests that did before come first."""
    # In processor time: on a busy machine a slow test notices nothing. One that waits has more.
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.signal(signal.SIGALRM, _too_long)
    places = {(mutant.file, line) for line in mutant.lines}
    reaching = [test for test in tests if not places.isdisjoint(test.lines)]
    with in_place(mutant):
        for test in sorted(reaching, key=lambda t: -luck[f"{mutant.function} {t.name}"]):
            try:
                # Again each second: an exception in a callback of the collector is only printed.
                signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S, 1)
                signal.setitimer(signal.ITIMER_REAL, 10 * LONGEST_S, 1)
                test.run()
            except _TooLong:
                return "it does not end"
            except Exception:
                luck[f"{mutant.function} {test.name}"] += 1
                return test.name
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def explained() -> dict[str, str]:
    """Return the reasons why some mutants change nothing observable, by mutant."""
    text = (Path(__file__).parent / "equivalent_mutants.json").read_text()
    every: dict[str, dict[str, str]] = json.loads(text)
    return {f"{of}: {change}": why for of, known in every.items() for change, why in known.items()}


def what(mutant: Mutant) -> str:
    """Return a mutant by the line that it changes, as it was and as it is."""
    lines = zip(mutant.was.splitlines(), mutant.now.splitlines(), strict=False)
    was, becomes = next((a.strip(), b.strip()) for a, b in lines if a != b)
    return f"{mutant.file} {mutant.function}: {was} -> {becomes}"


def key(mutant: Mutant) -> str:
    """Return a mutant's name that outlives changes elsewhere in its file, and of docstrings."""
    code = ast.parse(textwrap.dedent(mutant.now))
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    return hashlib.blake2b(f"{mutant.file} {ast.dump(code)}".encode(), digest_size=6).hexdigest()


def hunted(
    every: Sequence[Mutant], known: dict[str, str], tiers: Iterable[list[Killer]]
) -> Iterator[None]:
    """Note in `known` the test that notices each mutant, "" if none does; yield after each try, and
    note nothing of a mutant that not all tests have tried."""
    left, luck = [mutant for mutant in every if key(mutant) not in known], Counter[str]()
    for tests in tiers if left else ():
        for mutant in left:
            if noticed := killed_by(mutant, tests, luck):
                known[key(mutant)] = noticed
            yield
        left = [mutant for mutant in left if key(mutant) not in known]
    known |= {key(mutant): "" for mutant in left}


def main(arguments: list[str]) -> int:
    """Try mutants on one test after another; 1 if one survives that is not explained."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", default=TARGETS)
    parser.add_argument("--state", type=Path, default=Path(".mutants.json"))
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    given = parser.parse_args(arguments)
    known = json.loads(given.state.read_text()) if given.state.exists() else {}
    equivalent, until = explained(), time.monotonic() + 60 * given.minutes
    every = [mutant for file in given.files for mutant in mutants(file)]
    unexplained = [mutant for mutant in every if what(mutant) not in equivalent]
    for _ in hunted(unexplained, known, killers(given.files)):
        given.state.write_text(json.dumps(known))
        if time.monotonic() > until:
            break
    found = [known.get(key(mutant)) for mutant in unexplained]
    for mutant, noticed in zip(unexplained, found, strict=True):
        if noticed == "":
            print(f"ALIVE {what(mutant)}")
    alive, untried = found.count(""), found.count(None)
    noticed = len(found) - alive - untried
    print(f"{len(every)} mutants: {noticed} noticed, {alive} alive, {untried} untried")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
