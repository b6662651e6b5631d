"""The errors of a disk in user space at the moment (pure), and the orders of the harness."""

from __future__ import annotations

from typing import Literal

import msgspec

from nemesis.world import DiskFails


class Misbehaviours:
    """The present errors of a disk, and the number of requests that each has affected."""

    def __init__(self) -> None:
        self._all: dict[int, DiskFails] = {}
        self.affected: dict[int, int] = {}

    def add(self, number: int, one: DiskFails) -> None:
        """Add a fault to those in force."""
        self._all[number] = one
        self.affected.setdefault(number, 0)

    def remove(self, number: int) -> int:
        """From now on this is not wrong any more; how many requests it has affected."""
        self._all.pop(number, None)
        return self.affected.get(number, 0)

    def count(self, number: int, more: int = 1) -> None:
        """Count requests that an error has affected."""
        self.affected[number] = self.affected.get(number, 0) + more

    def __bool__(self) -> bool:
        return bool(self._all)

    def first(self, what: str) -> int:
        """Return the number of the first of that kind; 0 without one."""
        return next((number for number, one in self._all.items() if one.what == what), 0)

    def affecting(self, what: str) -> DiskFails | None:
        """Return the first of that kind. This counts a request as affected by it."""
        if not (number := self.first(what)):
            return None
        self.count(number)
        return self._all[number]


class DiskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to a disk. `serial` is its place among all orders to that process.

    * `add`: from now on it `fails` so. `remove`: no more of what has that `number`. `count`: how
      many requests it has affected so far.
    * `cut`: a power cut that keeps the share `keep` of the unsynced bytes, in order (`seed` -1) or
      drawn. `tear`: one that keeps nothing, and of a synced write, drawn by `which`, the first
      share `kept`. Both end the disk.
    * `copy`: all files to the folder `to`. `refresh`: files may have been changed from outside.
      `sync`: all that was written is on the disk.
    """

    what: Literal["add", "remove", "cut", "tear", "copy", "refresh", "count", "sync"]
    serial: int = 0
    fails: DiskFails | None = None
    number: int = 0
    keep: float = 0.0
    seed: int = -1
    which: float = 0.0
    kept: float = 0.0
    to: str = ""


class DiskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the order with that `serial`, or (0) that the disk is ready; `error` if the
    order had no effect. `before` and `after` are unsynced bytes, `affected` requests or lost
    changes, `words` describe torn data."""

    serial: int = 0
    before: int = 0
    after: int = 0
    affected: int = 0
    words: str = ""
    error: str = ""
