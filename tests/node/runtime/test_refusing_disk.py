"""A disk of the host that refuses: exit code 74, one sentence that arrives, and no half line."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from node.core.api import NodeConfig
from node.core.storage import Storage
from node.formats.errors import StorageError
from node.runtime import journal, loop
from node.runtime.datadir import DataDir
from node.runtime.loop import TraceFile
from tests.support import python_process
from tests.support.runtime_fakes import FakeCore
from tests.support.runtime_rig import Node


def test_a_trace_that_finds_no_room_ends_with_a_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "n1.jsonl"
    trace = TraceFile(str(file), "n1", 1)
    trace.write(5, [{"event": "started"}])
    before = file.read_bytes()
    write = os.write
    monkeypatch.setattr(loop.os, "write", lambda fd, data: write(fd, data[:7]))
    with pytest.raises(StorageError, match="no space left"):
        trace.write(6, [{"event": "stopped"}])
    trace.close()
    assert file.read_bytes() == before


def test_a_disk_that_is_gone_at_the_close_is_a_storage_error(tmp_path: Path) -> None:
    """A process whose disk is gone closes its files on its way out: that hides no reason."""
    folder = DataDir(tmp_path / "data")
    os.close(folder._fd)
    with pytest.raises(StorageError, match="cannot unlock the store"):
        folder.close()
    file = journal.Journal(tmp_path / "journal", bytes(16))
    os.close(file._fd)
    with pytest.raises(StorageError, match="cannot close the journal"):
        file.close()


class DiskGone(FakeCore):
    """A core whose storage raises the error of a disk that is not served any more."""

    def __init__(self, config: NodeConfig, storage: Storage, rng: Random, now_us: int) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


class Mistaken(FakeCore):
    """A core with an error of its own that is an OSError too."""

    def __init__(self, config: NodeConfig, storage: Storage, rng: Random, now_us: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("core", "code", "words"),
    [(DiskGone, 74, os.strerror(errno.ENOTCONN)), (Mistaken, 70, os.strerror(errno.EBADF))],
)
def test_the_last_sentence_arrives_though_the_output_is_on_a_full_disk(
    tmp_path: Path, core: type[FakeCore], code: int, words: str
) -> None:
    with Node(tmp_path, core, output_file="/dev/full") as node:
        node.start()
        assert node.ended() == code
        node.breakpoints.reached()
        assert words in node.breakpoints.ended


@pytest.mark.integration
def test_a_disk_in_user_space_that_is_gone_at_the_start_is_code_74(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with Node(tmp_path, FakeCore, disk_pid=child) as node:
        node.start()
        assert node.ended() == 74
        assert f"the disk that process {child} serves cannot be used" in node.output()


HELPER = """
import os, sys
from pathlib import Path
from node.runtime import children
if __name__ == "__main__":
    child = children.start("hub", children.settle_in, os.getpid(), Path(sys.argv[1]))
    child.join(60)
    assert child.exitcode == children.EXIT_NO_OUTPUT, child.exitcode
"""


@pytest.mark.integration
def test_a_helper_that_cannot_open_its_output_ends_without_a_traceback(tmp_path: Path) -> None:
    output = tmp_path / "gone" / "hub.txt"
    script = tmp_path / "helper.py"
    script.write_text(HELPER)
    # In a process of its own: a server that forks helpers may have other standard streams.
    ended = python_process.run(script, output)
    assert f"{output} cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0
