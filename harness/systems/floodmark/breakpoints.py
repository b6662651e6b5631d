"""The breakpoints of one broker's process, as the harness arms and releases them."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from node.formats.errors import FloodmarkError
from node.runtime.breakpoints import Breakpoint, Order, Report

PATIENCE_S: Final = 1.0
"""How long a process may take to confirm an order: it does so between two turns."""

_encoder: Final = msgspec.msgpack.Encoder()
_reports: Final = msgspec.msgpack.Decoder(Report)


class Remote:
    """The harness's end of a process's pipe for breakpoints, whatever has become of the process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._version = 0
        self._in_force = -1
        self._reached: set[int] = set()

    def order(self, armed: Sequence[Breakpoint], *, wait: bool = True) -> None:
        """Replace the breakpoints; returns when that is in force.

        A process that has not come to its first turn is not waited for: it obeys before that; nor
        is a dead one. Without `wait` nobody is. Raises FloodmarkError when it is not confirmed in
        time.
        """
        self._version += 1
        try:
            self._pipe.send_bytes(_encoder.encode(Order(version=self._version, armed=tuple(armed))))
            self._read(0)
            while wait and 0 <= self._in_force < self._version:
                if not self._read(PATIENCE_S):
                    raise FloodmarkError("the process did not confirm its breakpoints in time")
        except (EOFError, OSError):
            return

    def reached(self) -> set[int]:
        """The numbers of the breakpoints that the process has come to so far."""
        try:
            self._read(0)
        except (EOFError, OSError):
            return self._reached
        return self._reached

    def close(self) -> None:
        """Forget the process."""
        self._pipe.close()

    def _read(self, patience_s: float) -> bool:
        """Take in reports, waiting for the first; whether there was one."""
        found = False
        while self._pipe.poll(0 if found else patience_s):
            report = _reports.decode(self._pipe.recv_bytes())
            self._in_force = report.version
            if report.stopped >= 0:
                self._reached.add(report.stopped)
            found = True
        return found
