"""The run folder `store/<name>/<time>/` (docs/file-formats.md): readable at any moment."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.run_info import RunInfo
from harness.formats.seal import FILE as SEAL
from harness.formats.seal import seal_run
from nemesis.formats.schedule import Schedule
from node.formats.errors import StorageError, UsageError
from node.formats.files import (
    AppendOnlyFile,
    cannot_write,
    folder_of,
    make_folder,
    replacing,
    write_whole,
)
from node.formats.json_input import MOST_FILE_BYTES, Form, JsonReader, Unreadable, read_bytes
from node.formats.removal import try_to_remove

LATEST: Final = "latest"
_RESERVE: Final = ".reserve"
_RESERVE_BYTES: Final = 256 << 10
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_encoder: Final = msgspec.json.Encoder()


class RunDir:
    """One run's folder and the files the harness itself keeps in it."""

    def __init__(self, path: Path) -> None:
        """`path` is an existing run folder."""
        self.path = path

    @property
    def run(self) -> str:
        """The run's name within the store: `<name>/<time>`."""
        return f"{self.path.parent.name}/{self.path.name}"

    def write_info(self, info: RunInfo) -> None:
        """Write `run.json`, atomically."""
        text = msgspec.json.format(_encoder.encode(info), indent=2) + b"\n"
        write_whole(self.path / "run.json", text)

    def seal(self) -> None:
        """Write `seal.json`, the digests by which the checker notices later changes. Call it when
        all processes of the run have ended. Raises StorageError."""
        try:
            seal_run(self.path)
        except OSError as error:
            raise StorageError(cannot_write(self.path / SEAL, error)) from None

    def reserve(self) -> None:
        """Fill some disk space that `release` frees later, so that the end of a run can be written
        to a full disk. If there is no space, the run goes on without it."""
        with contextlib.suppress(OSError), replacing(self.path / _RESERVE) as file:
            file.write(bytes(_RESERVE_BYTES))

    def release(self) -> None:
        """Free the disk space that `reserve` filled."""
        try_to_remove(self.path / _RESERVE)

    def write_schedule(self, schedule: Schedule) -> None:
        write_whole(self.path / "schedule.json", schedule.to_pretty_json())

    def append_only(self, name: str) -> AppendOnlyFile:
        """Return an append-only file of this folder, such as `faults.jsonl`."""
        return AppendOnlyFile(self.path / name, self.path)

    def folder(self, name: str) -> Path:
        """Return the folder `name` inside this one; make it if missing. Raises StorageError."""
        return make_folder(self.path / name, self.path)


def create(store: Path, name: str) -> RunDir:
    """Make the run folder `store/name/TIME` and point the link `latest` to it. Raises UsageError
    for a name that is no file name, StorageError when the folder cannot be made."""
    if _NAME.fullmatch(name) is None or name == LATEST:
        raise UsageError(
            f"run name {name!r}: use letters, digits, dots, dashes and underscores "
            f"(at most 100, and not '{LATEST}')"
        )
    moment = time.strftime("%Y%m%dT%H%M%S")
    parent = store / name
    try:
        with folder_of(parent / moment, store, make=True) as folder:
            path = parent / _make_fresh(folder, moment)
            for part in ("trace", "output", "logs", "data"):
                os.mkdir(f"{path.name}/{part}", dir_fd=folder)
            _point_latest(folder, path.name)
    except OSError as error:
        why = cannot_write(parent, error)
        raise StorageError(f"{why}; choose another folder with --store") from None
    return RunDir(path)


def remove(folder: Path, store: Path) -> None:
    """Remove a run folder of a store, and its parent `store/NAME` if that has no other run; else
    `latest` points to the newest one. What is not in the store, or is reached through a link in it,
    stays."""
    folder, store = folder.absolute(), store.absolute()
    try_to_remove(folder, store)
    with contextlib.suppress(OSError), folder_of(folder, store) as parent:
        with os.scandir(f"/proc/self/fd/{parent}") as entries:
            left = [entry for entry in entries if not entry.is_symlink()]
        if not left and folder.parent != store:
            try_to_remove(folder.parent, store)
        elif left and not (folder.parent / LATEST).exists():
            newest = max(left, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            _point_latest(parent, newest.name)


def readable_lines(path: Path, form: type[Form]) -> list[Form]:
    """Return the lines of a file that are of a form; the checker reports the others."""
    found: list[Form] = []
    reader = JsonReader(form)
    with contextlib.suppress(OSError, Unreadable):
        for line in read_bytes(path, MOST_FILE_BYTES).splitlines():
            with contextlib.suppress(Unreadable):
                found.append(reader.decode(line))
    return found


def _make_fresh(parent: int, moment: str) -> str:
    """Make the first of moment, moment-2, moment-3.. that is not in use, and return its name."""
    number = 1
    while True:
        name = moment if number == 1 else f"{moment}-{number}"
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            number += 1
        else:
            return name


def _point_latest(parent: int, target: str) -> None:
    """Point the link `latest` here. It is a convenience: if that fails, the run goes on."""
    draft = f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=parent)
        os.symlink(target, draft, dir_fd=parent)
        os.rename(draft, LATEST, src_dir_fd=parent, dst_dir_fd=parent)
