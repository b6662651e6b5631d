"""Run folder, append-only files, ports: what must hold whenever and however the harness dies."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from harness.formats.run_info import RunInfo
from harness.runs import run_folder
from harness.systems import ports
from harness.systems.ports import HIGHEST, LOWEST, NoFreePort, PortLease
from nemesis.formats.schedule import Schedule, load
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.files import AppendOnlyFile
from node.formats.owned_folder import OwnedFolder
from tests.support.python_process import PythonProcess


def info(folder: run_folder.RunDir, **fields: object) -> RunInfo:
    return RunInfo(
        run=folder.run, name="x", seed=1, schedule_digest="", replay="", protocol="kafka", **fields
    )  # type: ignore[arg-type]


def test_a_run_folder_is_complete_from_the_first_moment(tmp_path: Path) -> None:
    # Runs of the same second get folders of their own.
    made = [run_folder.create(tmp_path / "store", "first") for _ in range(3)]
    assert len({each.path for each in made}) == 3
    folder = made[-1]
    folder.write_info(info(folder, state="running"))
    folder.write_schedule(Schedule())
    assert folder.run == f"first/{folder.path.name}"
    assert json.loads((folder.path / "run.json").read_text())["state"] == "running"
    assert load(folder.path) == Schedule()
    assert (tmp_path / "store" / "first" / "latest").resolve() == folder.path.resolve()


@pytest.mark.parametrize("name", ["", "latest", "../up", "a/b", ".hidden", "x" * 101, "a b"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="run name"):
        run_folder.create(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match="file/x: cannot be written: a part of its path"):
        run_folder.create(blocked, "x")


def test_a_file_that_is_replaced_is_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder.create(tmp_path, "x")
    folder.write_info(info(folder, state="running"))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=r"run\.json: cannot be written: the disk is full"):
        folder.write_info(info(folder, state="finished"))
    assert json.loads((folder.path / "run.json").read_text())["state"] == "running"
    assert [path.name for path in folder.path.iterdir() if path.name.startswith(".")] == []


def test_what_was_recorded_before_the_disk_was_full_stays_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may follow a half line, or two operations would become one."""
    write, left = os.write, [15]

    def write_while_there_is_space(file: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        taken = write(file, data[: left[0]])
        left[0] -= taken
        return taken

    out = AppendOnlyFile(tmp_path / "history.jsonl")
    monkeypatch.setattr(os, "write", write_while_there_is_space)
    out.write(b"123456789\n")
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"history\.jsonl: cannot be written: the disk is full"
        ):
            out.write(b"abcdefghi\n")
        left[0] += 1
    assert (tmp_path / "history.jsonl").read_bytes() == b"123456789\nabcde"


def test_leases_never_share_a_port_and_lie_below_the_ephemeral_range() -> None:
    with PortLease(20) as one, PortLease(20) as other:
        assert len({*one.ports, *other.ports}) == 40
        assert all(LOWEST <= port < HIGHEST for port in one.ports)
    assert one.ports == []


def test_a_port_that_somebody_listens_on_is_not_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    with PortLease(3) as lease:
        taken, free, _ = lease.ports
        monkeypatch.setattr("harness.systems.ports._candidates", lambda: iter([taken, free]))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", taken))
        listener.listen()
        with PortLease(1) as lease:
            assert lease.ports == [free]
        with pytest.raises(NoFreePort, match="2 free ports are needed"):
            PortLease(2)


def test_a_process_that_may_open_no_more_sockets_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(family: int) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("harness.systems.ports.socket.socket", full)
    with pytest.raises(FloodmarkError, match=r"cannot lease 2 ports: .*open files"):
        PortLease(2)


HOLD = """
import sys, time
from harness.systems.ports import PortLease
lease = PortLease(5)
print(*lease.ports, flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
def test_ports_come_back_when_their_holder_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = PythonProcess("-c", HOLD)
    held = [int(word) for word in holder.line().split()]
    monkeypatch.setattr("harness.systems.ports._candidates", lambda: iter(held))
    with pytest.raises(NoFreePort):
        PortLease(1)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with PortLease(5) as lease:
        assert lease.ports == held


def test_latest_is_a_run_that_is_there(tmp_path: Path) -> None:
    names = ["1", "2", "10"]
    folders = [run_folder.create(tmp_path, "storm").path for _ in names]
    for nth, folder in enumerate(folders):
        os.utime(folder, ns=(nth, nth))
    latest = tmp_path / "storm" / "latest"
    run_folder.remove(folders[0], tmp_path)
    assert latest.resolve() == folders[2].resolve()
    run_folder.remove(folders[2], tmp_path)
    assert latest.resolve() == folders[1].resolve()
    run_folder.remove(folders[1], tmp_path)
    assert list(tmp_path.iterdir()) == []
    run_folder.remove(latest, tmp_path)  # As its parent, it is gone already.


def test_sockets_are_in_a_place_with_a_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with OwnedFolder() as short:
        for length in (60, 61):
            place = short / ("d" * (length - len(f"{short}/")))
            place.mkdir()
            monkeypatch.setattr(tempfile, "tempdir", str(place))
            with ports.socket_folder() as folder:
                assert folder.parent == (place if length == 60 else Path("/tmp"))
