"""The harness's orders to the process of a disk in user space, and its answers. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from node.runtime.failing_disk import DiskFails


class DiskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to the process of a disk.

    * `add`: put the fault `fails` in force. `remove`: end the fault `number`. `count`: answer how
      many requests the fault `number` has affected so far.
    * `cut`: a power cut that keeps the share `keep` of the unsynced bytes, the first written
      (`seed` -1) or drawn ones. `tear`: a power cut that keeps none, and of a synced write, drawn
      by `which`, only the first share `kept`. Both end the disk.
    * `tearable`: answer in how many files a `tear` finds a write.
    * `copy`: copy all files into the folder `to`. `refresh`: read again the files that were changed
      from outside. `sync`: sync all written data."""

    what: Literal["add", "remove", "cut", "tearable", "tear", "copy", "refresh", "count", "sync"]
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
