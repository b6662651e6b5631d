"""The run folder `store/<name>/<time>/` (docs/file-formats.md): readable at any moment."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.run_info import RunInfo
from harness.formats.seal import FILE as SEAL
from harness.formats.seal import seal_run
from nemesis.formats.schedule import Schedule
from node.formats.errors import StorageError, UsageError
from node.formats.files import AppendOnlyFile, cannot_write, make_folder, write_whole
from node.formats.json_input import Form, JsonReader, Unreadable

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
        with contextlib.suppress(OSError):
            (self.path / _RESERVE).write_bytes(bytes(_RESERVE_BYTES))

    def release(self) -> None:
        """Free the disk space that `reserve` filled."""
        with contextlib.suppress(OSError):
            (self.path / _RESERVE).unlink(missing_ok=True)

    def write_schedule(self, schedule: Schedule) -> None:
        write_whole(self.path / "schedule.json", schedule.to_pretty_json())

    def append_only(self, name: str) -> AppendOnlyFile:
        """Return an append-only file of this folder, such as `faults.jsonl`."""
        return AppendOnlyFile(self.path / name)

    def folder(self, name: str) -> Path:
        """Return the folder `name` inside this one; make it if missing. Raises StorageError."""
        return make_folder(self.path / name)


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
        parent.mkdir(parents=True, exist_ok=True)
        path = _make_fresh(parent, moment)
        for part in ("trace", "output", "logs", "data"):
            (path / part).mkdir()
    except OSError as error:
        why = cannot_write(parent, error)
        raise StorageError(f"{why}; choose another folder with --store") from None
    _point_latest(parent, path.name)
    return RunDir(path)


def remove(folder: Path) -> None:
    """Remove a run folder, and its parent `store/NAME` if that has no other run; else `latest`
    points to the newest one."""
    shutil.rmtree(folder, ignore_errors=True)
    parent = folder.parent
    left = [path for path in parent.glob("*") if not path.is_symlink()]
    if not left:
        shutil.rmtree(parent, ignore_errors=True)
    elif not (parent / LATEST).exists():
        _point_latest(parent, max(left, key=lambda path: path.stat().st_mtime_ns).name)


def readable_lines(path: Path, form: type[Form]) -> list[Form]:
    """Return the lines of a file that are of a form; the checker reports the others."""
    found: list[Form] = []
    reader = JsonReader(form)
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(Unreadable):
                found.append(reader.decode(line))
    return found


def _make_fresh(parent: Path, moment: str) -> Path:
    """Return the first of moment, moment-2, moment-3.. that is not in use."""
    number = 1
    while True:
        path = parent / (moment if number == 1 else f"{moment}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _point_latest(parent: Path, target: str) -> None:
    """Point the link `latest` here. It is a convenience: if that fails, the run goes on."""
    draft = parent / f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.replace(parent / LATEST)
