"""A cluster and clients made of nothing, to drive a run through good and bad days."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.clients.types import Status
from harness.formats.problem import Problem
from harness.formats.run_info import Promise
from harness.runs import clock, storm
from harness.runs.clock import now_us
from harness.runs.run_folder import RunDir
from harness.systems.floodmark import nodes
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.system import Floodmark
from nemesis.formats.schedule import Cluster, Schedule
from nemesis.view import ClusterView
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.formats.trace import TraceEvent
from node.runtime.breakpoints import report_end
from tests.support.nemesis_world import RecordingWorld


class VirtualTime:
    """Stands for the module `time` in `harness.runs.clock`: time passes only where a run waits."""

    def __init__(self) -> None:
        self.t_ns = 10**15
        self.asleep_s = 0.0
        """How long each wait takes at least: the process gets no processor."""

    def monotonic_ns(self) -> int:
        return self.t_ns

    def sleep(self, seconds: float) -> None:
        self.t_ns += max(1_000, round(max(seconds, self.asleep_s) * 1e9))


def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """From now on runs in this process take no time, however busy the machine is."""
    made = VirtualTime()
    monkeypatch.setattr(clock, "time", made)
    for name in ("LEAST_RECOVERY_S", "STOP_MARGIN_S", "CATCH_UP_S"):
        monkeypatch.setattr(storm, name, 0.0)
    return made


class FakeWorld(RecordingWorld):
    """A recording world at the time of the run."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        super().__init__(cluster or Cluster())

    @property
    def done(self) -> list[str]:
        """Return the acts without their times."""
        return [line.partition(" ")[2] for line in self.log]

    def now_us(self) -> int:
        return now_us()


class FakeClients:
    """Always acknowledging, unless `problem` is set; `calls` is what was asked of them, `after`
    what happens after a request."""

    def __init__(self, partitions: tuple[str, ...], world: FakeWorld) -> None:
        self._partitions = partitions
        self._world = world
        self.calls: list[str] = []
        self.after: dict[str, Callable[[], None]] = {}
        self.problem = ""
        self.recovers = True
        self.answers = True
        self.looks_until_ready = 0
        self._progress: dict[str, int] = {}
        self._final = ""

    @property
    def status(self) -> Status:
        self.looks_until_ready -= 1
        return Status(
            t_us=0 if self.looks_until_ready >= 0 else now_us(),
            acked=9,
            progress=self._progress,
            final=self._final,
            problem=self.problem,
            last_op_us=1,
            operated=sum(act.startswith("operate") for act in self._world.done),
        )

    def ask(self, what: str, *arguments: int) -> None:
        assert what != "operate", "the world delivers operations"
        self.calls.append(what)
        if what == "healed" and self.recovers:
            self._progress = dict.fromkeys(self._partitions, arguments[0] + 5)
        if what == "read_everything":
            self._final = "done" if self.answers else "running"
        self.after.get(what, lambda: None)()

    def close(self) -> None:
        self.calls.append("close")


class FakeCluster:
    """Starts at once; `fail_poll` is a sentence to fail with."""

    capabilities = ("trace",)
    tells_in_sync = True

    bypassed: tuple[str, ...] = ()
    membership = None

    def __init__(self, schedule: Schedule, folder: RunDir) -> None:
        self.problems: list[Problem] = []
        self.undelivered: dict[str, int] = {}
        self.promise = Promise()
        self.partitions = dict.fromkeys(
            schedule.cluster.partition_names(), schedule.cluster.broker_names()
        )
        self.view = ClusterView()
        nodes = list(schedule.cluster.broker_names())
        for name in self.partitions:
            about = {"node": "v1", "leader": "n1", "leader_epoch": 1, "partition_epoch": 1}
            lists = {"isr": nodes, "elr": [], "replicas": nodes}
            self.view.observe({"event": "partition", "partition": name, **about, **lists})
        self.world = FakeWorld(schedule.cluster)
        self.made = FakeClients(schedule.cluster.partition_names(), self.world)
        self.fail_poll = ""
        self.stopped = self.closed = False
        self.folder, self.output_folder = folder, folder.path.resolve() / "output"

    def start(self) -> None:
        pass

    def clients(self) -> FakeClients:
        return self.made

    def ended(self) -> tuple[str, ...]:
        return ()

    def poll(self) -> list[TraceEvent]:
        if self.fail_poll:
            raise FloodmarkError(self.fail_poll)
        return []

    def stop(self) -> None:
        self.stopped = True

    def resume_suspended(self) -> None:
        pass

    def heal_members(self) -> bool:
        return True

    def dump_logs(self, folder: Path) -> list[str]:
        return []

    def close(self) -> None:
        self.closed = True


class FakeSystem(Floodmark):
    """Our brokers, with a cluster made of nothing; `prepare` may change each before it starts."""

    def __init__(self, prepare: Callable[[FakeCluster], None] = lambda cluster: None) -> None:
        super().__init__()
        self._prepare = prepare
        self.made: list[FakeCluster] = []

    def launch(  # type: ignore[override]
        self, schedule: Schedule, folder: RunDir, *, links: str = "", disk: str = ""
    ) -> FakeCluster:
        cluster = FakeCluster(schedule, folder)
        self._prepare(cluster)
        self.made.append(cluster)
        return cluster


class _Config(msgspec.Struct):
    breakpoints: tuple[object, ...] = ()
    disk_faults: tuple[object, ...] = ()
    clock_percent: int = 100
    slow_ms: int = 0
    boots: int = 0


def ended_nodes(
    patch: pytest.MonkeyPatch,
    folder: Path,
    code: int,
    look: Callable[[str], None] = lambda node: None,
    said: str = "",
) -> Nodes:
    """Return nodes whose processes end at once with a code, and say something last."""

    def spawn(config: object, pipe: Any) -> SimpleNamespace:
        report_end(pipe, said)
        return SimpleNamespace(pid=os.getpid(), exitcode=code, join=lambda timeout_s: None)

    patch.setattr(nodes, "spawn", spawn)
    make_config: Any = lambda node, incarnation: _Config()  # noqa: E731
    return Nodes(make_config, AppendOnlyFile(folder / "exits.jsonl"), look)
