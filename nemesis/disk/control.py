"""The harness's end of a disk in user space: it starts the process that serves the disk, gives it
orders and waits for its answers."""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

import multiprocess

from nemesis.disk import process
from nemesis.disk.orders import DiskAnswer, DiskOrder
from nemesis.disk.process import DiskConfig
from node.formats import host_tools
from node.formats.errors import FloodmarkError
from node.runtime import children
from node.runtime.children import Child
from node.runtime.failing_disk import DiskFails
from node.runtime.requests import Requests

READY_S: Final = 30.0
ORDER_S: Final = 60.0
"""How long an order may take: a power cut writes back all that was not synced."""
END_S: Final = 10.0
PROMPT_S: Final = 5.0


class DiskTooSlow(FloodmarkError):
    """A disk did not answer in time: what it did until then is unknown."""


class UserDisk:
    """The disk of one node, with a process that serves it while the node may run. `folder` always
    has the data that was written last. A node inside the namespaces of the process `pid` sees the
    disk mounted over it. Data that is there when the disk starts counts as synced. Main thread
    only."""

    def __init__(
        self, folder: Path, output: Path, *, write_through: bool = False, write_back_ms: int = 0
    ) -> None:
        """Prepare a disk without a process. Its own files are kept beside `folder`; the options are
        those of `DiskConfig`, `output` is the file for what the process prints."""
        self.folder = folder
        self._config = DiskConfig(
            folder=str(folder),
            aside=str(folder.with_name(f"{folder.name}.disk")),
            output=str(output),
            parent_pid=os.getpid(),
            write_through=write_through,
            write_back_ms=write_back_ms,
        )
        self._process: Child | None = None
        self._wrong: dict[int, DiskFails] = {}
        self._affected: dict[int, int] = {}
        self._last_number = 0

    @property
    def pid(self) -> int:
        """The pid of the process that serves the disk; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended without being asked to."""
        return self._process is not None and not self._process.is_alive()

    def await_end_if_dying(self) -> None:
        """If the process is about to end, wait until it has: it answers no request any more."""
        if self._process is None:
            return
        with contextlib.suppress(DiskTooSlow):
            try:
                self._order(DiskOrder(what="count"), PROMPT_S)
            except DiskTooSlow:
                raise
            except FloodmarkError:
                self._process.join(END_S)

    def start(self) -> None:
        """Start the process, or let a running one read again what was changed in `folder` from
        outside. Faults that were added stay in force. Raises FloodmarkError."""
        if self._process is not None and self._process.is_alive():
            self._order(DiskOrder(what="refresh"))
            return
        self.end()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pipe, far_end = multiprocess.Pipe()
        self._requests = Requests[DiskAnswer](self._pipe, DiskAnswer)
        name = f"disk-{self.folder.name}"
        self._process = children.start(name, process.main, self._config, far_end)
        far_end.close()
        ready = self._answer(None, "start", READY_S)
        if ready.error:
            self.end()
            raise FloodmarkError(f"there can be no disk in user space: {ready.error}")
        for number, one in self._wrong.items():
            self._order(DiskOrder(what="add", number=number, fails=one))

    def add(self, one: DiskFails) -> int:
        """Let the disk fail in this way from now on, also under later processes; return the number
        of the fault. If it raises FloodmarkError, the fault is not in force."""
        self._last_number = number = self._last_number + 1
        if self._process is not None:
            try:
                self._order(DiskOrder(what="add", number=number, fails=one))
            except FloodmarkError:
                # A disk that is only slow will carry it out all the same.
                with contextlib.suppress(OSError):
                    self._requests.send(DiskOrder(what="remove", number=number))
                raise
        self._wrong[number] = one
        return number

    def remove(self, number: int) -> int:
        """End the fault of that number; return how many requests it affected. If it raises
        FloodmarkError, the fault stays in force, and can be removed again."""
        affected = 0
        if self._process is not None:
            affected = self._order(DiskOrder(what="remove", number=number)).affected
        self._wrong.pop(number, None)
        return affected + self._affected.pop(number, 0)

    def cut(self, keep: float, seed: int = -1) -> tuple[int, int]:
        """Cut the power of a node that is down: keep only the share `keep` (0 to 1) of the unsynced
        bytes, the first written or, with `seed`, drawn ones. The disk has ended then. Return the
        number of unsynced bytes before and after. Raises DiskTooSlow: the disk has ended too, and
        some unsynced bytes may be gone."""
        if self._process is None:
            return 0, 0
        answer = self._last_order(DiskOrder(what="cut", keep=keep, seed=seed))
        return answer.before, answer.after

    def tear(self, which: float, kept: float) -> str:
        """Cut the power of a node that is down, keep no unsynced byte, and of a synced write (drawn
        by `which`, 0 to 1) only the first share `kept`. Return what was torn, as a phrase. If no
        write was synced, raises FloodmarkError, and nothing is lost."""
        if self._process is None or not self._order(DiskOrder(what="tearable")).affected:
            raise FloodmarkError(
                f"{self.folder.name}: nothing was synced yet, so nothing can be torn"
            )
        return self._last_order(DiskOrder(what="tear", which=which, kept=kept)).words

    def copy(self, to: Path) -> None:
        """Copy the files of the disk into the folder `to`, between two requests."""
        self.start()
        self._order(DiskOrder(what="copy", to=str(to)))

    def sync(self) -> None:
        """Sync all written data, whether the node synced it or not."""
        self._order(DiskOrder(what="sync"))

    def end(self) -> None:
        """End the disk's process once its node is down: all written data then counts as synced."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join(END_S)
        self._process = None
        self._pipe.close()

    def close(self) -> None:
        """End the process, and remove the disk's own files beside the folder."""
        self.end()
        shutil.rmtree(self._config.aside, ignore_errors=True)

    def _last_order(self, order: DiskOrder) -> DiskAnswer:
        """Give an order that ends the disk, after its counts are saved."""
        for number in self._wrong:
            counted = self._order(DiskOrder(what="count", number=number)).affected
            self._affected[number] = self._affected.get(number, 0) + counted
        try:
            answer = self._order(order)
        except DiskTooSlow:
            # It would carry the order out later, when nobody expects that any more.
            self.end()
            raise
        for number, one in self._wrong.items():
            if one.what == "lying":
                self._affected[number] += answer.affected
        self.end()
        return answer

    def _order(self, order: DiskOrder, limit_s: float | None = None) -> DiskAnswer:
        """Give an order and return the answer, within `ORDER_S` unless a limit is given. Raises
        FloodmarkError."""
        answer = self._answer(order, order.what, ORDER_S if limit_s is None else limit_s)
        if answer.error:
            raise FloodmarkError(f"the disk of {self.folder.name}: {answer.error}")
        return answer

    def _answer(self, order: DiskOrder | None, what: str, limit_s: float) -> DiskAnswer:
        """Give an order, if there is one, and wait for an answer. Raises FloodmarkError."""
        of = f"the disk of {self.folder.name}"
        try:
            if order is not None:
                self._requests.send(order)
            return self._requests.answer(limit_s)
        except TimeoutError:
            raise DiskTooSlow(f"{of} did not answer within {limit_s:g} s ({what})") from None
        except (EOFError, OSError):
            raise FloodmarkError(f"{of} has ended (see {self._config.output})") from None


def why_impossible() -> str:
    """Return in a sentence why this machine can have no disk in user space; "" if it can."""
    return _why_impossible(host_tools.at(host_tools.FUSE))


@cache
def _why_impossible(_device: Path) -> str:
    near, far = multiprocess.Pipe()
    child = children.start("disk-probe", process.probe, os.getpid(), far)
    far.close()
    try:
        error = Requests[DiskAnswer](near, DiskAnswer).answer(READY_S).error
    except TimeoutError:
        error = f"no answer within {READY_S:g} s"
    except (EOFError, OSError):
        error = "the process that was to mount one has ended"
    finally:
        child.kill()
        child.join(END_S)
        near.close()
    return f"there can be no disk in user space: {error}" if error else ""
