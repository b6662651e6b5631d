"""Optional tools of the host: where they are found, how they are hidden, and that nothing else
looks for them."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node.formats import host_tools
from node.formats.host_tools import FAKETIME, FUSE, ONLY_FOLDER
from tests.support.bare_machine import noted
from tests.support.fake_tools import make_tools
from tests.support.paths import ROOT
from tests.support.sources import PACKAGES, parsed, python_files

FINDER = "node/formats/host_tools.py"
# The first finds the command of this program itself.
LOOK_THEMSELVES = {FINDER, "harness/runs/program.py", "tests/support/bare.py"}
LOOKS = {"shutil.which", "ctypes.util.find_library", "util.find_library"}


def test_only_what_lies_in_the_given_folder_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = make_tools(tmp_path / "machine", "strace", FAKETIME)
    given = make_tools(tmp_path / "given", "strace", FAKETIME, "fuse")
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setattr(host_tools, "_LIBRARY_FOLDERS", (machine,))
    monkeypatch.delenv(ONLY_FOLDER)
    assert host_tools.program("strace") == str(machine / "strace")
    assert host_tools.program("strace", before=[given]) == str(given / "strace")
    assert host_tools.library(FAKETIME) == str(machine / FAKETIME)
    assert host_tools.at(FUSE) == Path(FUSE)
    assert [*host_tools.carried("node", "core")] == [ROOT / "node" / "core"]
    monkeypatch.setenv(ONLY_FOLDER, str(given))
    assert host_tools.program("strace", before=[machine]) == str(given / "strace")
    assert host_tools.library(FAKETIME) == str(given / FAKETIME)
    assert host_tools.at(FUSE) == given / "fuse"
    assert not [*host_tools.carried("node", "core")]
    monkeypatch.setenv(ONLY_FOLDER, os.devnull)
    assert host_tools.program("strace", before=[machine]) is None
    assert host_tools.library(FAKETIME) is None
    assert not host_tools.at(FUSE).exists()


def test_nothing_else_looks_for_tools() -> None:
    found = []
    for file in python_files(*PACKAGES, "tests"):
        name = str(file.relative_to(ROOT))
        for node in ast.walk(parsed(file)):
            match node:
                case ast.Attribute(value=ast.Name(id=module), attr=what):
                    looks = f"{module}.{what}" in LOOKS
                case ast.ImportFrom(module=str(module), names=names):
                    looks = any(f"{module}.{each.name}" in LOOKS for each in names)
                case ast.Constant(value=str(text)):
                    looks = text in (FUSE, FAKETIME)
                case _:
                    continue
            if looks and name not in LOOK_THEMSELVES:
                found.append(f"{name}:{node.lineno}")
    assert not found, "\n".join(found)


def test_a_test_of_the_first_tier_finds_no_tool() -> None:
    assert os.environ[ONLY_FOLDER] == os.devnull


@pytest.mark.parametrize(
    ("used", "use"),
    [
        ("the program a-tool", lambda: os.posix_spawnp("a-tool", ["a-tool"], {})),
        ("the device /dev/fuse0", lambda: os.open("/dev/fuse0", os.O_RDONLY)),
        ("the call unshare", lambda: ctypes.CDLL(None).unshare),
    ],
)
def test_what_a_test_uses_of_the_machine_past_the_finder_is_noted(
    used: str, use: Callable[[], object]
) -> None:
    with noted() as found, contextlib.suppress(OSError):
        use()
    assert found == [used]


def test_what_every_machine_has_and_a_test_wrote_is_no_tool(tmp_path: Path) -> None:
    own = make_tools(tmp_path, "strace") / "strace"
    with noted() as found:
        for words in (
            [sys.executable, "-c", ""],
            [str(own)],
            ["sh", "-c", ":"],
            ["git", "version"],
        ):
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        assert Path(os.devnull).read_bytes() == b""
    assert not found
