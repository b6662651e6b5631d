"""Compiled code is used only if it was made from the present sources, and runs as they do."""

from __future__ import annotations

import ast
import builtins
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.sim.compiled import PURE, ROOT, SOURCES, SUFFIX, home, hot_files, key
from tests.support import python_process

RUNS = """
import random
from harness.sim import compiled
from harness.search.worlds.outcome import run_simulated
from harness.search.grammar.phrases import compose
from harness.sim.run import simulate
from nemesis.formats.schedule import Poll, Schedule, Send, Workload
from node.core.bugs import KNOWN_BUGS
from node.core.protocol import REGISTRY

subjects = [(name, ()) for name in REGISTRY]
subjects += [(each.protocol, (each.name,)) for each in KNOWN_BUGS]
for number, (protocol, bugs) in enumerate(subjects):
    rng = random.Random(f"compiled/{number}")
    schedule = compose(rng, protocol, bugs)
    result = simulate(schedule, seed=number, stop_at="visible")
    print(protocol, *bugs, result.digest, result.events, result.sentence)
    print(run_simulated(schedule).bucket)

told = Workload(clients=1, consumers=1, duration_ms=300, operations=(
    Send(client="c3", at_ms=20, partition="log-0"), Poll(client="c4", at_ms=60, partition="log-0"),
))
result = simulate(Schedule(workload=told), seed=1)
print("told", result.digest, sum(op.step >= 0 for op in result.ops))
print(compiled.in_use())
"""


@pytest.mark.parametrize("file", hot_files())
def test_a_hot_module_has_nothing_that_mypyc_cannot_compile(file: str) -> None:
    """`make fast` does not compile a search in a tuple that is put together, nor subclasses of
    built-in types."""
    parsed = ast.parse((ROOT / file).read_text())
    for part in ast.walk(parsed):
        if isinstance(part, ast.Compare):
            searched = [each for each in part.comparators if isinstance(each, ast.Tuple)]
            stars = [e for each in searched for e in each.elts if isinstance(e, ast.Starred)]
            assert not stars, f"{file}:{part.lineno}"
        if isinstance(part, ast.ClassDef):
            bases = [b.value if isinstance(b, ast.Subscript) else b for b in part.bases]
            built_in = [b.id for b in bases if isinstance(b, ast.Name) and hasattr(builtins, b.id)]
            wrong = [name for name in built_in if not name.endswith(("Exception", "Error"))]
            assert not wrong, f"{file}:{part.lineno}"


def tree(folder: Path, module: str) -> Path:
    (folder / "node").mkdir()
    (folder / "node" / "one.py").write_text(module)
    return folder


def outcome(root: Path, script: str, **environment: str) -> str:
    """Return the output of a script in a process of its own with that project."""
    done = python_process.run("-c", script, cwd=root, PYTHONPATH=str(root), **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pretend(root: Path) -> None:
    """Replace a compiled module by a file that is no code, so that importing it fails."""
    folder = home(root) / key(root) / "node" / "formats"
    folder.mkdir(parents=True)
    (folder / f"wire{SUFFIX}").write_bytes(b"not a library")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the sources, with nothing compiled."""
    for package in (*SOURCES, "reports"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_key_changes_with_any_source(tmp_path: Path) -> None:
    before = key(tree(tmp_path, "x = 1\n"))
    (tmp_path / "node" / "one.py").write_text("x = 2\n")
    changed = key(tmp_path)
    (tmp_path / "node" / "two.py").touch()
    assert len({before, changed, key(tmp_path)}) == 3
    (tmp_path / "node" / "two.py").unlink()
    (tmp_path / "node" / "one.py").write_text("x = 1\n")
    assert key(tmp_path) == before


def test_a_module_of_older_sources_is_never_found(project: Path) -> None:
    pretend(project)
    look = f"import harness; {LOOK}"
    assert outcome(project, look, **{PURE: ""}) == "True\n"
    assert outcome(project, look, **{PURE: "1"}) == "False\n"
    with (project / "node" / "formats" / "wire.py").open("a") as source:
        source.write("# changed\n")
    assert outcome(project, look + "; import node.formats.wire", **{PURE: ""}) == "False\n"


def test_no_struct_is_defined_in_a_compiled_module() -> None:
    """It would decode anything into its fields: mypyc keeps `tuple` of `tuple[int, str]`."""
    names = [file.removesuffix(".py").replace("/", ".") for file in hot_files()]
    assert "node.core.broker" in names
    structs = [
        f"{name}.{defined.__name__}"
        for name in names
        for defined in vars(importlib.import_module(name)).values()
        if isinstance(defined, type)
        and issubclass(defined, msgspec.Struct)
        and defined.__module__ == name
    ]
    assert structs == []


HEIRS = """
import importlib, pkgutil, sys
from harness.sim.compiled import ROOT, SOURCES, hot_files

compiled = {file.removesuffix(".py").replace("/", ".") for file in hot_files()}
for package in SOURCES:
    for found in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print([
    f"{name}.{defined.__name__}"
    for name, module in sorted(sys.modules.items())
    if name.startswith(SOURCES) and name not in compiled
    for defined in list(vars(module).values())
    if isinstance(defined, type) and defined.__module__ == name
    if any(base.__module__ in compiled for base in defined.__mro__)
])
"""


def test_no_other_module_inherits_from_a_class_of_a_compiled_one() -> None:
    """Python refuses such a class when it is made: `floodmark run` did not start."""
    assert outcome(ROOT, HEIRS, **{PURE: "1"}) == "[]\n"


COMPILE = "from harness.sim.compiled import compile_all; compile_all()"


LOOK = "from harness.sim import compiled; print(compiled.in_use())"
LEAVE = "from harness.sim import compiled; compiled.leave(); import node.formats.wire; "


@pytest.mark.parametrize(
    "script", ["import node.formats.wire; ", f"import harness; {LEAVE}"], ids=["imported", "left"]
)
def test_compiled_modules_are_not_used_if_they_come_too_late_or_are_left(
    project: Path, script: str
) -> None:
    pretend(project)
    assert outcome(project, script + LOOK, **{PURE: ""}) == "False\n"


@pytest.mark.nightly
def test_compiled_code_and_the_sources_give_the_same_runs(project: Path) -> None:
    """Every protocol and every known bug once: trace, history, verdict and sentence."""
    subprocess.run([sys.executable, "-c", COMPILE], cwd=project, check=True)
    compiled = outcome(project, RUNS, **{PURE: ""})
    pure = outcome(project, RUNS, **{PURE: "1"})
    assert compiled.splitlines()[:-1] == pure.splitlines()[:-1]
    assert (compiled.splitlines()[-1], pure.splitlines()[-1]) == ("True", "False")
