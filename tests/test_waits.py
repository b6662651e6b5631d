"""Waits, and their limits, as read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.sources import PACKAGES, parsed, python_files


def places(kind: type[Any], *texts: str, under: tuple[str, ...] = ("tests",)) -> list[str]:
    """Return the places of nodes of a kind whose source begins with one of these texts."""
    return [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for text in texts
        for file in python_files(*under, having=text.partition("(")[0])
        for node in ast.walk(parsed(file))
        if isinstance(node, kind) and ast.unparse(node).startswith(text)
    ]


def test_no_test_sleeps() -> None:
    """A test waits for an event, with a deadline."""
    assert not (found := places(ast.Call, "time.sleep(", "asyncio.sleep(")), "\n".join(found)


def test_no_test_replaces_a_constant_that_a_default_has_taken() -> None:
    """`def ask(limit_s=LIMIT_S)` takes the constant once: a test that replaces it later waits for
    the whole limit of the product."""
    replaced = {
        (ast.unparse(node.args[0]).rpartition(".")[2], node.args[1].value)
        for file in python_files("tests", having="setattr")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".setattr")
        if len(node.args) == 3 and isinstance(node.args[1], ast.Constant)
    }
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {default.id}"
        for file in python_files(*PACKAGES)
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults))
        if isinstance(default, ast.Name) and (file.stem, default.id) in replaced
    ]
    assert not found, "\n".join(found)


def test_waits_take_any_descriptor() -> None:
    """`select.select` refuses descriptors above 1,023, which a long run reaches."""
    under = (*PACKAGES, "tests")
    found = places(ast.Attribute, "select.select", under=under)
    found += places(ast.ImportFrom, "from select import select", under=under)
    assert not found, "\n".join(found)


# Calls without an argument that return only when something has happened.
ENDLESS_WAITS = {"wait", "join", "get", "acquire", "result", "communicate", "accept"}
RECEIVES = {"recv", "recv_bytes", "recv_multipart"}
LIMITED = {"poll", "wait_for", "settimeout"}
# Functions that may wait for ever, and why.
MAY_WAIT = {
    ("checker/engine/workers.py", "map"): "`as_completed` has seen it end",
    ("harness/search/jobs.py", "_do_jobs"): "it lives until its pool closes the pipe",
    ("harness/systems/external/calls.py", "call"): "the task is done",
    ("harness/systems/external/client_program.py", "_line"): "each call of an adapter is limited",
    ("harness/systems/external/client_program.py", "aclose"): "it was killed",
    ("harness/systems/external/members.py", "drain"): "a join of a group, which is limited",
    ("harness/systems/external/members.py", "poll"): "a join of a group, which is limited",
    ("harness/systems/external/members.py", "work"): "a join of a group, which is limited",
    ("harness/systems/external/postgres_node.py", "run"): "a node lives as long as its server",
    ("harness/systems/external/launcher.py", "_keep"): "it lives as long as what it started",
    ("harness/systems/external/system.py", "_version"): "the call is limited",
    ("nemesis/disk/server.py", "obey"): "a lock that is held for one request",
    ("node/runtime/template.py", "_fork_twice"): "the child of a fork, which ends at once",
    (
        "node/runtime/requests.py",
        "obey",
    ): "there is something, or a disk lives until the pipe is closed",
    ("nemesis/links/tcp_proxy.py", "run"): "a proxy lives until the harness closes the pipe",
    ("nemesis/links/tcp_proxy.py", "_changed"): "the caller limits it",
}


def endless_waits(function: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a function that may wait without a deadline. What it polls first, it may
    receive."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    named = [(node, node.func.attr) for node in calls if isinstance(node.func, ast.Attribute)]
    within = {inner for node, name in named if name in LIMITED for inner in ast.walk(node)}
    polls = any(name in LIMITED for _, name in named)
    for node, name in named:
        if ast.unparse(node.func) == "os.waitpid":
            if ast.unparse(node.args[1]) == "0":
                yield node
        elif name in RECEIVES and not (node.args or node.keywords):
            if not polls:
                yield node
        elif name in ENDLESS_WAITS and not (node.args or node.keywords) and node not in within:
            yield node


def test_every_wait_has_a_deadline() -> None:
    """Whatever hangs, the harness does not."""
    found = {
        (str(file.relative_to(ROOT)), function.name): node.lineno
        for file in python_files(*PACKAGES)
        for function in ast.walk(parsed(file))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in endless_waits(function)
    }
    assert {place: line for place, line in found.items() if place not in MAY_WAIT} == {}
    assert MAY_WAIT.keys() <= found.keys(), "exceptions that nobody needs"


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("child.join()", True),
        ("child.join(REAP_S)", False),
        ("','.join(names)", False),
        ("process.wait(timeout=3)", False),
        ("process.wait()", True),
        ("pipe.recv()", True),
        ("pipe.poll(3) and pipe.recv()", False),
        ("os.waitpid(pid, 0)", True),
        ("os.waitpid(pid, os.WNOHANG)", False),
        ("asyncio.wait_for(event.wait(), 3)", False),
        ("names.get(key)", False),
        ("updates.get()", True),
    ],
)
def test_waits_are_understood(body: str, waits: bool) -> None:
    assert bool([*endless_waits(ast.parse(f"def f():\n    {body}"))]) == waits


def test_a_test_raises_signals_in_its_own_thread() -> None:
    """`signal.raise_signal` has been handled when it returns. A signal to the process goes to any
    thread of it, and is handled at some later moment."""
    assert not (found := places(ast.Call, "os.kill(os.getpid(),")), "\n".join(found)
