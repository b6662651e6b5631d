"""Exit codes of all commands when the output, the terminal or the working directory is of no use:
that of the verdict or request, or 70."""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path
from typing import Final

import pytest

from harness.cli.common import EXIT_HARNESS
from harness.cli.main import command_names, main
from tests.support.command import exit_code

LINES: Final = {
    "bisect": ("bisect none nats",),
    "bugs": ("bugs", "bugs find --only none"),
    "check": ("check history.jsonl", "check --json history.jsonl", "check caf\udcff.jsonl"),
    "compare": ("compare none none",),
    "demo": ("demo --store history.jsonl",),
    "explore": ("explore --budget 1x",),
    "faults": ("faults",),
    "nightly": ("nightly --store history.jsonl",),
    "protocols": ("protocols",),
    "replay": ("replay kip-101-scenario-1", "replay none"),
    "report": ("report caf\udcff",),
    "run": ("run --store history.jsonl",),
    "search": ("search"),
    "shrink": ("shrink .",),
    "systems": ("systems", "systems check none:x"),
}
"""Lines of each command that end soon, one at least in an error."""
STREAMS: Final = ("full", "no reader", "closed", "stderr full", "all full", "all closed", "ascii")


def _take_away(streams: str) -> None:
    """Put this process's stdout and stderr into a state that a shell can leave them in."""
    full = os.open("/dev/full", os.O_WRONLY)
    if streams in ("full", "all full"):
        os.dup2(full, 1)
    if streams in ("stderr full", "all full"):
        os.dup2(full, 2)
    if streams == "no reader":
        reads, writes = os.pipe()
        os.dup2(writes, 1)
        os.close(reads)
    for number in {"closed": (1,), "all closed": (0, 1, 2)}.get(streams, ()):
        os.close(number)


def _text_stream(number: int, streams: str) -> io.TextIOWrapper | None:
    """Open what Python opens for a descriptor when it starts."""
    try:
        opened = io.FileIO(number, "w", closefd=False)
    except OSError:
        return None
    encoding = "ascii" if streams == "ascii" else "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(opened), encoding, line_buffering=number == 2)


def _code(line: str, streams: str, said: Path) -> int:
    """Run a line in a child process with these streams; return the code that the shell sees, with
    Python's own of a stream that cannot be flushed at the end."""
    child = os.fork()
    if not child:
        code = 99
        try:
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            _take_away(streams)
            sys.stdout, sys.stderr = (_text_stream(n, streams) for n in (1, 2))  # type: ignore[assignment]
            try:
                main(line.split())
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 98
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except OSError:
            code = 120
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caf\udcff.jsonl").write_bytes(b"")
    (tmp_path / "history.jsonl").write_bytes(b"")
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path)


def test_each_command_has_lines() -> None:
    assert list(LINES) == sorted(command_names())


@pytest.mark.parametrize("name", LINES)
def test_streams_that_take_nothing_give_no_other_verdict(tmp_path: Path, name: str) -> None:
    wrong = []
    said = tmp_path / "said"
    for line in LINES[name]:
        due = exit_code(line.split())  # The children share what this imports.
        for streams in STREAMS if name == "check" else ("full", "all closed", "ascii"):
            code = _code(line, streams, said)
            if code not in ((due,) if streams == "ascii" else (due, EXIT_HARNESS)):
                wrong.append(f"{line}: {streams}: {code}, not {due}")
            if "Traceback" in said.read_text(errors="replace"):
                wrong.append(f"{line}: {streams}: a traceback")
    assert wrong == []


@pytest.mark.parametrize("place", ["gone", "caf\udcff"])
@pytest.mark.parametrize("name", LINES)
def test_a_working_directory_may_be_gone_or_have_any_name(
    tmp_path: Path, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    codes = []
    for folder in (tmp_path / "usual", tmp_path / place):
        folder.mkdir(exist_ok=True)
        (folder / "history.jsonl").write_bytes(b"")
        monkeypatch.chdir(folder)
        if place == folder.name == "gone":
            (folder / "history.jsonl").unlink()
            folder.rmdir()
        codes.append(_code(LINES[name][0], "", said))
    due, code = codes
    assert code in ((due, 64, 70) if place == "gone" else (due,)), said.read_text(errors="replace")
    assert "Traceback" not in said.read_text(errors="replace")
    assert "shows where" not in said.read_text(errors="replace")
