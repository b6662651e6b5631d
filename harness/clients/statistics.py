"""The progress of the clients of a run, counted from the history (pure)."""

from __future__ import annotations

from harness.clients.types import Status
from harness.formats.history import Op


class ClientStatistics:
    """Counts of operations as they complete."""

    def __init__(self) -> None:
        self.status = Status(progress={}, missing={})
        self.acked_end: dict[str, int] = {}
        self.without_offset: set[str] = set()
        """The partitions of which a send was acknowledged without an offset."""
        self._heal_us = 0
        self._invoked_us: dict[int, int] = {}
        self._unanswered: set[int] = set()

    def healed(self, t_us: int) -> None:
        """Start to record progress at `t_us`, the time at which all faults were healed."""
        self._heal_us = t_us
        self.status.progress.clear()

    def add(self, op: Op) -> None:
        """Count one history line."""
        status = self.status
        status.last_op_us = op.t_us
        if op.f == "send":
            self._send(op)
        elif op.f == "poll" and op.type == "ok":
            status.polled += 1
            status.read_records += sum(run.count for read in op.reads for run in read.records)
            status.read_records += sum(run.count for d in op.deliveries for run in d.records)
            if self._unanswered:
                self._see(op)

    def _send(self, op: Op) -> None:
        status, send = self.status, op.sends[0]
        if op.type == "invoke":
            status.invoked += 1
            self._invoked_us[op.op] = op.t_us
            return
        invoked_us = self._invoked_us.pop(op.op, 0)
        since_heal = 0 < self._heal_us <= invoked_us
        if op.type == "ok":
            status.acked += 1
            if send.offset < 0:
                self.without_offset.add(send.partition)
            else:
                end = send.offset + send.count
                self.acked_end[send.partition] = max(end, self.acked_end.get(send.partition, 0))
            if since_heal:
                status.progress.setdefault(send.partition, op.t_us)
        elif op.type == "fail":
            status.failed += 1
        else:
            status.unknown += 1
            if since_heal and send.acks == 0 and send.partition not in status.progress:
                self._unanswered.add(send.value)

    def _see(self, op: Op) -> None:
        """Count a record that can be read as progress: with acks=0 nothing is acknowledged."""
        for read in op.reads:
            for run in read.records:
                if run.value in self._unanswered:
                    self.status.progress.setdefault(read.partition, op.t_us)
        if len(self._unanswered) > 10_000:
            self._unanswered.clear()
