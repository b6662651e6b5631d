"""The faults in force on a disk in user space, and the harness's orders to its process. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from nemesis.world import DiskFails


class Misbehaviours:
    """The faults in force on a disk, by number, and how many requests each has affected."""

    def __init__(self) -> None:
        self._all: dict[int, DiskFails] = {}
        self.affected: dict[int, int] = {}

    def add(self, number: int, one: DiskFails) -> None:
        """Put a fault in force under this number."""
        self._all[number] = one
        self.affected.setdefault(number, 0)

    def remove(self, number: int) -> int:
        """End a fault; return how many requests it has affected."""
        self._all.pop(number, None)
        return self.affected.get(number, 0)

    def count(self, number: int, more: int = 1) -> None:
        """Count `more` requests that a fault has affected."""
        self.affected[number] = self.affected.get(number, 0) + more

    def __bool__(self) -> bool:
        return bool(self._all)

    def first(self, what: str) -> int:
        """Return the number of the first fault of kind `what`; 0 if there is none."""
        return next((number for number, one in self._all.items() if one.what == what), 0)

    def affecting(self, what: str) -> DiskFails | None:
        """Return the first fault of kind `what` (or None), and count a request that it affects."""
        if not (number := self.first(what)):
            return None
        self.count(number)
        return self._all[number]


class DiskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to the process of a disk.

    * `add`: put the fault `fails` in force. `remove`: end the fault `number`. `count`: answer how
      many requests the fault `number` has affected so far.
    * `cut`: a power cut that keeps the share `keep` of the unsynced bytes, the first written
      (`seed` -1) or drawn ones. `tear`: a power cut that keeps none, and of a synced write, drawn
      by `which`, only the first share `kept`. Both end the disk.
    * `copy`: copy all files into the folder `to`. `refresh`: read again the files that were changed
      from outside. `sync`: sync all written data."""

    what: Literal["add", "remove", "cut", "tear", "copy", "refresh", "count", "sync"]
    fails: DiskFails | None = None
    number: int = 0
    keep: float = 0.0
    seed: int = -1
    which: float = 0.0
    kept: float = 0.0
    to: str = ""


class DiskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an order; the first one says that the disk is ready. After an `error` the order
    had no effect. `before` and `after` count unsynced bytes, `affected` requests or lost
    changes, `words` describe torn data."""

    before: int = 0
    after: int = 0
    affected: int = 0
    words: str = ""
    error: str = ""
