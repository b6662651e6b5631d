"""All clients of a run as one: requests to them, and their progress (pure).

The owner of a group calls the sessions: in virtual time, or in a process of their own."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

from harness.clients.consumer import Consumer
from harness.clients.factory import ClientFactory
from harness.clients.member import GroupMember
from harness.clients.session import Session
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


class ClientGroup:
    """The clients of a run. `sessions` has the sessions that were made so far, by client. Each
    request returns the clients that are to be stepped at once."""

    def __init__(self, factory: ClientFactory) -> None:
        self.factory = factory
        self.statistics = ClientStatistics()
        self.sessions: dict[str, Session] = {}
        self._next_op = count().__next__
        self._writers: list[Session] = []
        self._final: list[Consumer | GroupMember] = []

    def status(self, now_us: int) -> Status:
        """Return the present state of all clients; later calls update the same object."""
        status = self.statistics.status
        status.t_us = now_us
        status.writers_idle = all(session.idle for session in self._writers)
        if self._final:
            status.final = "done" if all(reader.done for reader in self._final) else "running"
            status.missing = {p: at for reader in self._final for p, at in reader.missing.items()}
        return status

    def go(self) -> Collection[str]:
        """Make the sessions of the storm."""
        made = self.factory.sessions(self._next_op)
        self._writers = [made[client] for client in self.factory.writing]
        self.sessions.update(made)
        return made

    def operate(self, number: int) -> Collection[str]:
        """Give the schedule's operation `number` to its client, if it has a session."""
        operation = self.factory.workload.operations[number]
        session = self.sessions.get(operation.client)
        self.statistics.status.operated += 1
        if session is None:
            return ()
        session.operate(number, operation)
        return (operation.client,)

    def healed(self, t_us: int) -> Collection[str]:
        """Note when the last fault was healed: acknowledgements after `t_us` count as recovery."""
        self.statistics.healed(t_us)
        return ()

    def stop_writing(self) -> Collection[str]:
        """Let the writers finish what they began."""
        for session in self._writers:
            session.stop()
        return ()

    def read_everything(self) -> Collection[str]:
        """Stop all clients, and make new ones that read every partition from its beginning."""
        for session in self.sessions.values():
            session.stop()
        partitions = self.factory.cluster.partition_names()
        targets = {p: self.statistics.acked_end.get(p, 0) for p in partitions}
        readers = self.factory.final_readers(self._next_op, targets)
        self._final = list(readers.values())
        self.sessions.update(readers)
        return readers
