"""Systems of a test: a log in memory that keeps everything, and one that forgets its last records.

They are named on a command line as `tests.support.trial_systems:InMemoryLog`."""

from __future__ import annotations

from pathlib import Path

from msgspec.json import encode as encode_json

from harness.clients.types import Status
from harness.formats.history import Op, Read, RecordRun, Send, encode
from harness.formats.problem import Exit
from harness.formats.run_info import Promise
from harness.runs.clock import now_us
from harness.runs.run_folder import RunDir
from harness.systems.interface import System
from nemesis.formats.schedule import Schedule
from tests.support.harness_fakes import FakeClients, FakeCluster, FakeWorld

FORGOTTEN = 3


class InMemoryClients(FakeClients):
    """One producer whose sends are acknowledged at once, and a reader at the end, who does not
    see the last `forgotten` records."""

    def __init__(
        self, partitions: tuple[str, ...], world: FakeWorld, history: Path, forgotten: int
    ) -> None:
        super().__init__(partitions, world)
        self._file = history.open("wb")
        self._forgotten = forgotten
        self._ops = 0
        self._log: list[int] = []

    @property
    def status(self) -> Status:
        if self.calls and "stop_writing" not in self.calls and len(self._log) < 500:
            self._send()
        return super().status

    def ask(self, what: str, *arguments: int) -> None:
        super().ask(what, *arguments)
        if what == "go":
            # However late the next look is.
            for _ in range(2 * FORGOTTEN):
                self._send()
        if what == "read_everything":
            self._read_everything()

    def _send(self) -> None:
        offset, value = len(self._log), 1 + len(self._log)
        self._log.append(value)
        self._write(
            sends=(Send(partition="log-0", value=value),),
            done=(Send(partition="log-0", value=value, offset=offset),),
        )

    def _read_everything(self) -> None:
        kept = len(self._log) - self._forgotten
        record = RecordRun(offset=0, value=1, count=kept)
        self._write(
            final=True,
            reads=(Read(partition="log-0", start=0),),
            read=(
                Read(partition="log-0", start=0, records=(record,), hw=kept),
                Read(partition="log-0", start=kept, hw=kept),
            ),
        )
        self._file.close()

    def _write(
        self,
        *,
        sends: tuple[Send, ...] = (),
        done: tuple[Send, ...] = (),
        reads: tuple[Read, ...] = (),
        read: tuple[Read, ...] = (),
        final: bool = False,
    ) -> None:
        """Write an operation, invoked and completed."""
        for kind, sent, got in (("invoke", sends, reads), ("ok", done, read)):
            op = Op(
                op=self._ops,
                t_us=now_us(),
                process=1 + final,
                client="c2" if final else "c1",
                type=kind,  # type: ignore[arg-type]
                f="poll" if final else "send",
                sends=sent,
                reads=got,
                final=final,
            )
            self._file.write(encode(op))
        self._ops += 1


class WorldOfBrokers(FakeWorld):
    """A world that knows brokers only: the system has no other nodes."""

    def is_up(self, node: str) -> bool:
        assert node.startswith("n"), f"the system has no node {node}"
        return super().is_up(node)

    def is_paused(self, node: str) -> bool:
        assert node.startswith("n"), f"the system has no node {node}"
        return super().is_paused(node)


class ListOfThisProcess(FakeCluster):
    """A cluster without processes, whose nodes end when they are asked to."""

    def stop(self) -> None:
        super().stop()
        lines = [
            encode_json(Exit(node=node, incarnation=1, t_us=now_us(), by="stop", expected=True))
            for node in sorted({node for nodes in self.partitions.values() for node in nodes})
        ]
        (self.folder.path / "exits.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


class InMemoryLog(System):
    """A log that keeps everything, in a list of this process."""

    summary = "a list in the memory of a test"
    faults = ("kill", "pause")
    forgotten = 0

    def version(self) -> str:
        return "7.1"

    def launch(self, schedule: Schedule, folder: RunDir, *, links: str, disk: str) -> FakeCluster:
        cluster = ListOfThisProcess(schedule, folder)
        cluster.capabilities = ()
        cluster.promise = Promise()
        cluster.world = WorldOfBrokers()
        names = schedule.cluster.partition_names()
        history = folder.path / "history.jsonl"
        cluster.made = InMemoryClients(names, cluster.world, history, self.forgotten)
        return cluster


class ForgetfulLog(InMemoryLog):
    """A log that loses its last three records."""

    forgotten = FORGOTTEN
