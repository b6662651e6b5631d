"""The one small interface between the harness and a system under test.

Our own brokers are the first implementation (`harness.systems.floodmark.cluster`); other people's
replicated
logs can be others, judged by the same checks as far as their capabilities go.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harness.clients.types import Status
from harness.formats.run_info import Promise
from nemesis.view import ClusterView
from nemesis.world import World
from node.formats.trace import TraceEvent


class RunClients(Protocol):
    """The clients of a run, wherever they live; they write `history.jsonl`."""

    @property
    def status(self) -> Status:
        """The newest status known; its `problem` is set when the clients can do no more."""
        ...

    def go(self) -> None:
        """Start the workload."""
        ...

    def operate(self, operation: int) -> None:
        """Have its client begin an operation of the workload, by its number."""
        ...

    def healed(self, t_us: int) -> None:
        """Tell from when on an acknowledgement counts as recovery."""
        ...

    def stop_writing(self) -> None:
        """Producers invoke nothing more; wait for `status.writers_idle`."""
        ...

    def read_everything(self) -> None:
        """Begin the final reads; wait for `status.final == "done"`."""
        ...

    def close(self) -> None:
        """End them."""
        ...


class ClusterUnderTest(Protocol):
    """A replicated log of several processes that can be started, hurt, healed and read out.

    `capabilities` says what it leaves behind: "trace", "logs", "hw", "epochs". `problems` are
    sentences about the host or the harness that spoilt the run.
    """

    brokers: tuple[str, ...]
    voters: tuple[str, ...]
    problems: list[str]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the system can tell about itself."""
        ...

    @property
    def promise(self) -> Promise:
        """What the system promises in its present configuration."""
        ...

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Partition -> its replicas."""
        ...

    @property
    def view(self) -> ClusterView:
        """Who leads what: kept up to date while the cluster starts, afterwards by the caller of
        `poll`."""
        ...

    @property
    def world(self) -> World:
        """How to hurt and heal its nodes and links; only after `start`."""
        ...

    def start(self) -> None:
        """Start all processes; return when every partition can be written to.

        Raises FloodmarkError, in one sentence, when that does not come.
        """
        ...

    def clients(self) -> RunClients:
        """Start the clients of the workload, silent until `go`."""
        ...

    def address_map(self) -> dict[str, str]:
        """Where each node listens."""
        ...

    def poll(self) -> list[TraceEvent]:
        """What the nodes' traces say since the last call; also notices processes that ended."""
        ...

    def stop(self) -> None:
        """Stop everything that still runs, cleanly where that is possible."""
        ...

    def dump_logs(self, folder: Path) -> list[str]:
        """Write each replica's log to `folder`/<node>.jsonl; returns problems, in sentences."""
        ...

    def close(self) -> None:
        """Leave nothing behind: no process, no port. May be called at any moment, and twice."""
        ...
