"""How a disk in user space misbehaves at the moment (pure), and what the harness can order."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from typing import Literal

import msgspec


class Misbehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a disk; see `nemesis.world.DiskFails`.

    `files` is a pattern for the names of the files it concerns.
    """

    number: int
    what: Literal["error", "slow", "full", "lying", "unreadable"]
    delay_ms: int = 0
    written: bool = False
    files: str = "*"


class Misbehaviours:
    """All that is wrong with a disk now, and how many requests it has affected, by its number."""

    def __init__(self) -> None:
        self._all: dict[int, Misbehaviour] = {}
        self.affected: dict[int, int] = {}

    def add(self, one: Misbehaviour) -> None:
        """From now on this is wrong too."""
        self._all[one.number] = one
        self.affected.setdefault(one.number, 0)

    def remove(self, number: int) -> int:
        """From now on this is not wrong any more; how many requests it has affected."""
        self._all.pop(number, None)
        return self.affected.get(number, 0)

    def count(self, number: int, more: int = 1) -> None:
        """It has affected so many requests more."""
        self.affected[number] = self.affected.get(number, 0) + more

    def __bool__(self) -> bool:
        return bool(self._all)

    def affecting(self, what: str, name: Callable[[], str] = lambda: "") -> Misbehaviour | None:
        """The first of that kind that concerns the file with that name. This counts a request as
        affected by it."""
        for one in self._all.values():
            if one.what == what and (one.files == "*" or fnmatch(name(), one.files)):
                self.count(one.number)
                return one
        return None

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return any(one.what == "full" for one in self._all.values())

    @property
    def lying(self) -> Misbehaviour | None:
        """The first that lets syncs be lies."""
        return next((one for one in self._all.values() if one.what == "lying"), None)


class DiskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness wants of a disk. `serial` is its place among all orders to that process.

    * `add`: from now on `misbehaviour`. `remove`: no more of the one with that `number`. `count`:
      how many requests it has affected so far.
    * `cut`: a power cut that keeps the share `keep` of the unsynced bytes, in order (`seed` -1) or
      drawn. `tear`: one that keeps nothing, and of a synced write, drawn by `which`, the first
      share `kept`. Both end the disk.
    * `copy`: all files to the folder `to`. `refresh`: files may have been changed from outside.
    """

    what: Literal["add", "remove", "cut", "tear", "copy", "refresh", "count"]
    serial: int = 0
    misbehaviour: Misbehaviour | None = None
    number: int = 0
    keep: float = 0.0
    seed: int = -1
    which: float = 0.0
    kept: float = 0.0
    to: str = ""


class DiskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the order with that `serial`, or (0) that the disk is ready; `error` if nothing
    did. `before` and `after` are unsynced bytes, `affected` requests or lost changes, `words` say
    what was torn."""

    serial: int = 0
    before: int = 0
    after: int = 0
    affected: int = 0
    words: str = ""
    error: str = ""
