"""Modules that open, write, remove, load and start, each with who decides the names.

A name that a file brings decides nothing but through `node/formats/reading.py`, `files.py` and
`removal.py`, which open, write and remove, and `harness/systems/setup.py`, which says what code and
which programs may be loaded. A module in no row of these tables must use those four."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from typing import Final

import pytest

from tests.support.sources import PACKAGES, ROOT, parsed, python_files

# Who decides the names that a module passes.
GUARD = "the guard of names from outside"
NODE = "a process of a run, in its own folder, with the names of the node that it is"
DISK = "a disk in user space, below its own folder, through descriptors"
SYSTEM = "an adapter, in the folders of the servers that it starts"
STARTER = "the harness, with a program that `setup_of` allowed"
HOST = "constants: files of /proc, /dev and /sys, and programs that host_tools finds"
OURS = "constants: files of this package"
PERSON = "a person, on the command line"
MEMORY = "the process itself, which keeps the bytes to itself"
TEMPORARY = "the module itself, in a folder that it makes and owns"

OPENS: Final = {
    "checker/engine/folder_lock.py": PERSON,
    "checker/engine/result_cache.py": OURS,
    "checker/engine/spark_session.py": TEMPORARY,
    "checker/evidence/arrow_blob.py": TEMPORARY,
    "checker/ingest/external_history.py": TEMPORARY,
    "checker/ingest/read_tables.py": GUARD,
    "harness/runs/interrupts.py": HOST,
    "harness/runs/host.py": HOST,
    "harness/runs/system_check.py": TEMPORARY,
    "harness/runs/terminal.py": HOST,
    "harness/search/catalogue/*.py": OURS,
    "harness/sim/compiled.py": OURS,
    "harness/systems/external/*.py": SYSTEM,
    "harness/systems/floodmark/trace_tail.py": NODE,
    "harness/systems/node_processes.py": NODE,
    "harness/systems/ports.py": HOST,
    **{f"harness/systems/{name}.py": SYSTEM for name in ("kafka", "liftbridge", "nats")},
    "harness/systems/pysyncobj.py": SYSTEM,
    **{f"harness/systems/{name}.py": SYSTEM for name in ("rabbitmq", "redis")},
    "nemesis/disk/*.py": DISK,
    "nemesis/links/*.py": HOST,
    "nemesis/ready_made.py": OURS,
    "nemesis/strace.py": HOST,
    "node/formats/files.py": GUARD,
    "node/formats/owned_folder.py": TEMPORARY,
    "node/formats/reading.py": GUARD,
    "node/runtime/*.py": NODE,
    "reports/theme.py": OURS,
}
WRITES: Final = {
    "checker/engine/java.py": TEMPORARY,
    "checker/engine/result_cache.py": PERSON,
    "checker/engine/spark_session.py": TEMPORARY,
    "checker/ingest/external_history.py": TEMPORARY,
    "harness/nightly/rows.py": PERSON,
    "harness/runs/run_folder.py": GUARD,
    "harness/search/bisect.py": PERSON,
    "harness/sim/compiled.py": OURS,
    "harness/systems/external/*.py": SYSTEM,
    "harness/systems/floodmark/cluster.py": NODE,
    **{f"harness/systems/{name}.py": SYSTEM for name in ("galera", "kafka", "liftbridge", "nats")},
    "harness/systems/redis.py": SYSTEM,
    "nemesis/disk/*.py": DISK,
    "nemesis/wall_clocks.py": TEMPORARY,
    "node/formats/files.py": GUARD,
    "node/runtime/*.py": NODE,
}
REMOVES: Final = {
    "harness/runs/run_folder.py": GUARD,
    "harness/sim/compiled.py": OURS,
    "harness/systems/disks.py": TEMPORARY,
    "harness/systems/external/*.py": SYSTEM,
    "harness/systems/floodmark/world.py": TEMPORARY,
    "nemesis/disk/*.py": DISK,
    "node/formats/files.py": GUARD,
    "node/formats/removal.py": GUARD,
    "node/runtime/*.py": NODE,
}
TEMPORARIES: Final = {
    **dict.fromkeys(("checker/ingest/external_history.py", "harness/cli/check.py"), PERSON),
    "harness/sim/compiled.py": OURS,
    "harness/systems/external/versions.py": SYSTEM,
    "node/formats/owned_folder.py": TEMPORARY,
}
"""Modules that make folders of drawn names, and who keeps or removes them."""
LOADS: Final = {
    "checker/checks/registry.py": OURS,
    "harness/cli/main.py": OURS,
    "harness/explore/snapshot.py": MEMORY,
    "harness/pytest_plugin.py": TEMPORARY,
    "harness/sim/compiled.py": OURS,
    "harness/systems/external/launcher.py": OURS,
    "harness/systems/external/load.py": STARTER,
    "harness/systems/external/versions.py": SYSTEM,
    "node/runtime/template.py": OURS,
}
STARTS: Final = {
    "checker/engine/java.py": HOST,
    "harness/pytest_plugin.py": OURS,
    "harness/systems/external/*.py": STARTER,
    "nemesis/disk/server.py": HOST,
    "nemesis/links/namespaces.py": HOST,
    "nemesis/strace.py": HOST,
    "node/runtime/template.py": OURS,
}

# The calls of each kind: of modules (or all that a module has, "*"), then methods by name.
_OS_WRITES = "mkdir makedirs mkfifo mknod symlink link truncate chmod chown rename renames replace"
_STARTS = (
    "system popen startfile execv execve execvp execvpe execl execle execlp posix_spawn spawnv"
)
CALLS: Final[dict[str, tuple[dict[str, set[str]], set[str]]]] = {
    "opens": (
        {
            "builtins": {"open"},
            "os": {"open", "fdopen"},
            "io": {"open", "FileIO", "open_code"},
            "lmdb": {"open", "Environment"},
            "sqlite3": {"connect"},
            "mmap": {"mmap"},
            "pyarrow": {"OSFile", "memory_map", "input_stream", "output_stream"},
            "pyarrow.parquet": {"ParquetFile", "read_table", "ParquetDataset"},
            "tarfile": {"open", "TarFile"},
            "zipfile": {"ZipFile"},
        },
        {"open", "read_bytes", "read_text"},
    ),
    "writes": (
        {
            "os": set(_OS_WRITES.split()),
            "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
        },
        {"write_bytes", "write_text", "touch", "mkdir", "symlink_to", "hardlink_to", "chmod"},
    ),
    "removes": (
        {"os": {"unlink", "remove", "rmdir", "removedirs"}, "shutil": {"rmtree"}},
        {"unlink", "rmdir"},
    ),
    "temporaries": (
        {"tempfile": {"mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile"}},
        set(),
    ),
    "loads": (
        {
            "builtins": {"exec", "eval", "compile", "__import__"},
            "importlib": {"import_module", "reload"},
            "importlib.util": {"spec_from_file_location", "module_from_spec"},
            "runpy": {"run_path", "run_module"},
            "pickle": {"load", "loads", "Unpickler"},
            "marshal": {"load", "loads"},
            "shutil": {"unpack_archive"},
        },
        {"exec_module", "extract", "extractall"},
    ),
    "starts": (
        {
            "subprocess": {"run", "Popen", "call", "check_call", "check_output"},
            "os": set(_STARTS.split()),
            "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
        },
        set(),
    ),
}
TABLES: Final = {
    "opens": OPENS,
    "writes": WRITES,
    "removes": REMOVES,
    "temporaries": TEMPORARIES,
    "loads": LOADS,
    "starts": STARTS,
}
LAST: Final = frozenset[str]().union(
    *(names for of_modules, methods in CALLS.values() for names in (*of_modules.values(), methods))
)
# Methods of these names that are of no file: a volume, a store or a browser has them too.
NO_FILE: Final = {"webbrowser.open", "self.open", "self._disk.open", "self.disk.open", "disk.open"}


def test_calls_that_reach_the_host_are_found_however_they_are_written() -> None:
    text = """
import os as system, subprocess
from shutil import rmtree as gone
from importlib import import_module
import pyarrow.parquet as pq
gone(x); system.rename(x, y); subprocess.run(x); import_module(x); pq.ParquetFile(x)
open(x); path.open(); path.unlink(); exec(x); call = system.execve
"""
    found = {(kind, name) for kind, _, name in calls(ast.parse(text))}
    assert found == {
        *(("removes", "shutil.rmtree"), ("removes", "path.unlink"), ("writes", "os.rename")),
        *(("starts", "subprocess.run"), ("starts", "os.execve"), ("opens", "builtins.open")),
        *(("loads", "importlib.import_module"), ("loads", "builtins.exec")),
        *(("opens", "pyarrow.parquet.ParquetFile"), ("opens", "path.open")),
    }


@pytest.mark.parametrize("kind", TABLES)
def test_each_module_that_reaches_the_host_is_named(kind: str) -> None:
    table = TABLES[kind]
    strange, used = [], set()
    for name, line, call in _uses().get(kind, ()):
        rows = [row for row in table if fnmatch(name, row)]
        used.update(rows)
        if not rows:
            strange.append(f"{name}:{line}: {call}")
    assert not strange, "\n".join(strange)
    assert used == {*table}


@cache
def _uses() -> dict[str, list[tuple[str, int, str]]]:
    """Return by kind what the packages use: file, line and name."""
    found: dict[str, list[tuple[str, int, str]]] = {}
    for file in python_files(*PACKAGES):
        for kind, line, name in calls(parsed(file)):
            found.setdefault(kind, []).append((str(file.relative_to(ROOT)), line, name))
    return found


def calls(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Yield the uses of what reaches the host: kind, line, and the name in full."""
    nodes = [*ast.walk(tree)]
    known = _imported(nodes)
    names = LAST | known.keys()
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            name = known.get(node.id, f"builtins.{node.id}")
        elif isinstance(node, ast.Attribute) and node.attr in LAST:
            name = ast.unparse(node)
            first, _, rest = name.partition(".")
            name = f"{known[first]}.{rest}" if first in known else name
        else:
            continue
        module, _, last = name.rpartition(".")
        for kind, (of_modules, methods) in CALLS.items():
            is_method = module not in of_modules and id(node) in called
            if last in of_modules.get(module, ()) or (
                is_method and last in methods and name not in NO_FILE and not _is_other(module)
            ):
                yield kind, node.lineno, name


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return what each imported name of a module stands for."""
    known = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            known.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    return known


def _is_other(owner: str) -> bool:
    """Return whether a method belongs to a module of ours, or to a volume, and to no path."""
    return owner.split(".")[0] in {*PACKAGES} or owner.endswith("_volume") or owner == "self"
