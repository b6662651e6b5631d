"""The disk and the memory of the host fail: that is a problem of a run and never of the system."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.runs import host, judge
from harness.runs.host import HostDisk, kind_of
from harness.systems.floodmark import nodes
from node.formats.errors import FloodmarkError
from node.formats.host_errors import cannot, reason
from tests.support.harness_fakes import ended_nodes


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (f"cannot write the journal x: [Errno 28] {os.strerror(errno.ENOSPC)}", "disk-full"),
        ("cannot write the trace file x: no space left", "disk-full"),
        ("store/run.json: the disk is full", "disk-full"),
        (f"x: cannot be written: {os.strerror(errno.EDQUOT)}", "disk-full"),
        (reason(OSError(errno.ENOSPC, "")), "disk-full"),
        (reason(OSError(errno.EDQUOT, "")), "disk-full"),
        (f"cannot write the store in x: {os.strerror(errno.EROFS)}", "disk-failed"),
        (f"cannot sync the store in x: {os.strerror(errno.EIO)}", "disk-failed"),
        (str(cannot("write x", OSError(errno.EROFS, ""))), "disk-failed"),
        (str(cannot("write x", OSError(f"x: {os.strerror(errno.EIO)}"))), "disk-failed"),
        (reason(OSError(errno.ENOMEM, "")), "no-memory"),
        ("unexpected MemoryError: ", "no-memory"),
        (f"fork: {os.strerror(errno.ENOMEM)}", "no-memory"),
        ("the log of log-0 contradicts itself", None),
        ("", None),
    ],
)
def test_a_last_sentence_says_whether_the_host_is_to_blame(said: str, kind: str | None) -> None:
    assert kind_of(said) == kind


def file_system(free: int, flags: int = 0, blocks: int = 1000) -> Callable[[Path], Any]:
    return lambda _: SimpleNamespace(
        f_flag=flags, f_bfree=free, f_bavail=free, f_frsize=4096, f_blocks=blocks
    )


def gone(_: Path) -> Any:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (file_system(500), []),
        (file_system(0), ["disk-full"]),
        (file_system(3), ["disk-full"]),
        (file_system(0, blocks=0), []),
        (file_system(500, os.ST_RDONLY), ["disk-failed"]),
        (gone, ["disk-failed"]),
    ],
)
def test_a_look_at_the_disk_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[Path], Any], kinds: list[str]
) -> None:
    disk = HostDisk(tmp_path)
    monkeypatch.setattr(host.os, "statvfs", found)
    disk.look()
    disk.look()
    assert [each.kind for each in disk.problems] == kinds
    assert all(str(tmp_path) in each.sentence for each in disk.problems)
    # A process that ends then has ended because of that, whatever it says.
    why = disk.why_ended("n1", "unexpected KeyError: 'x'")
    assert [why.kind] == kinds if why else kinds == []


def ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    *,
    said: str = "",
    blame: Callable[[nodes.Nodes], None] = lambda ours: None,
    look: Callable[[nodes.Nodes], None] = lambda ours: None,
) -> tuple[bool, list[str]]:
    """Return whether the end of a process of n1 is expected, and the kinds of problems."""
    ours = ended_nodes(monkeypatch, tmp_path, code, lambda node: look(ours), said)
    ours.start("n1")
    blame(ours)
    (end,) = ours.reap()
    return end.expected, [each.kind for each in ours.problems]


@pytest.mark.parametrize(
    ("code", "fault", "expected"),
    [
        (74, None, False),
        (74, {}, True),
        (-signal.SIGBUS, {}, True),
        (-signal.SIGBUS, None, False),
        (74, {"reads": False}, True),
        (-signal.SIGBUS, {"reads": False}, False),
        (-signal.SIGSEGV, {"reads": True}, False),
        (70, {"reads": True}, False),
    ],
)
@pytest.mark.parametrize("when", ["blame", "look"])
def test_a_fault_of_a_disk_excuses_only_what_it_can_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    fault: dict[str, bool] | None,
    expected: bool,
    when: str,
) -> None:
    def blame(ours: nodes.Nodes) -> None:
        if fault is not None:
            ours.blame_disk("n1", now=True, **fault)

    assert ended(tmp_path, monkeypatch, code, **{when: blame}) == (expected, [])


@pytest.mark.parametrize("code", [1, 70, 74])
def test_a_process_that_ended_because_of_the_host_says_so_by_its_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    full = "cannot write the trace file x: no space left"
    assert ended(tmp_path, monkeypatch, code, said=full) == (True, ["disk-full"])
    assert ended(tmp_path, monkeypatch, code, said="its epoch fell") == (False, [])


@pytest.mark.parametrize(
    ("error", "raised", "sentence"),
    [
        (MemoryError("malloc failed"), FloodmarkError, "too little memory to judge .* check .*"),
        (ImportError("failed to map segment"), FloodmarkError, "too little memory to judge"),
        (ImportError("no module named 'pyarrow'"), ImportError, "pyarrow"),
    ],
)
def test_too_little_memory_to_judge_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception],
    sentence: str,
) -> None:
    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(judge, "_judged", fail)
    with pytest.raises(raised, match=sentence):
        judge.judge([tmp_path], None, lambda sentence: None)
