"""Exit codes when the output, the terminal or the working directory is of no use."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT

_PYTHON: Final = f"{shlex.quote(sys.executable)} -m harness.cli"


def _code(shell: str, place: Path, **environment: str) -> tuple[int, str]:
    """Run a line of a shell in a folder; return its exit code and what it said on stderr."""
    done = subprocess.run(
        ["sh", "-c", shell],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr.decode(errors="replace")


@pytest.mark.parametrize(
    ("streams", "codes"),
    [
        (">/dev/full", (70,)),
        (">/dev/full 2>&1", (70,)),
        ("2>/dev/full", (2, 70)),
        (">&-", (2,)),
        ("2>&-", (2,)),
        (">&- 2>&-", (2,)),
        ("<&- >&- 2>&-", (2,)),
    ],
)
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_stream_that_takes_nothing_gives_no_other_verdict(
    tmp_path: Path, form: str, streams: str, codes: tuple[int, ...]
) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    code, said = _code(f"{_PYTHON} check {form} history.jsonl {streams}", tmp_path)
    assert code in codes
    assert "Traceback" not in said


def test_a_pipe_without_a_reader_gives_no_other_verdict(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    code, said = _code(
        f"mkfifo p; exec 3<>p; exec 4>p 3>&-; {_PYTHON} check history.jsonl >&4", tmp_path
    )
    assert code in (2, 70)
    assert "Traceback" not in said


@pytest.mark.parametrize("name", [b"caf\xc3\xa9", b"\xff"])
def test_neither_the_terminal_nor_a_name_must_be_utf_8(tmp_path: Path, name: bytes) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    folder.mkdir()
    (folder / "history.jsonl").write_bytes(b"")
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"}
    code, said = _code(f"{_PYTHON} check {shlex.quote(str(folder))}", folder, **ascii_only)
    assert code == 2
    assert "Traceback" not in said


@pytest.mark.parametrize(("path", "codes"), [(".", (64, 70)), ("/", (2, 64, 70))])
def test_a_working_directory_may_be_gone(tmp_path: Path, path: str, codes: tuple[int, ...]) -> None:
    gone = f"mkdir gone && cd gone && rmdir ../gone && {_PYTHON} check"
    code, said = _code(f"{gone} {path}/no-such-history.jsonl", tmp_path)
    assert code in codes
    assert said.count("\n") == 1
