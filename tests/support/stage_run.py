"""A run over a cluster made of nothing, in virtual time: a stage of scripts.

The output of `run` has what was asked of the clients, what was done to nodes, the record of the
faults (`#0 inject`), the state of the run and its problems."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from harness.formats.problem import node_ended
from harness.runs import run, storm
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.progress import Progress
from harness.runs.run import Run, RunOrder
from harness.systems.setup import Resolved
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Send, Timings, Workload
from node.formats.errors import FloodmarkError
from tests.support.harness_fakes import FakeCluster, FakeSystem, virtual_time

TIMINGS: Final = Timings(heartbeat_ms=1, session_ms=20, lag_ms=1)
SIGNALS: Final = {"sigint": signal.SIGINT, "sigterm": signal.SIGTERM}
Change = Callable[[FakeCluster], None]


class RunStage:
    """One schedule, and what happens in its run. `asleep_s` is how long each wait takes at least;
    `catch_up_ms` how long the run waits for logs that are not known to be alike."""

    def __init__(
        self, duration_ms: int = 60, clients: int = 1, asleep_s: int = 0, catch_up_ms: int = 0
    ) -> None:
        self._workload = {"clients": clients, "consumers": clients, "duration_ms": duration_ms}
        self._place = tempfile.TemporaryDirectory(prefix="floodmark-run-")
        self.store = Path(self._place.name)
        self._asleep_s = asleep_s
        self._catch_up_ms = catch_up_ms
        self._waits_s = 0.0
        self._faults: list[Kill] = []
        self._sends: list[Send] = []
        self.prepare: list[Change] = []
        self.info: dict[str, Any] = {}

    # -- what happens

    def kill(self, on: str, at_ms: int, for_ms: int | None = None) -> None:
        """Add this fault to the schedule."""
        self._faults.append(Kill(on=on, at_ms=at_ms, for_ms=for_ms))

    def send(self, at_ms: int) -> None:
        """Add this operation to the schedule."""
        self._sends.append(Send(client="c1", at_ms=at_ms))

    def clients(self, **fields: Any) -> None:
        """Clients that do not recover, do not answer, or have a problem."""
        self.prepare.append(lambda cluster: vars(cluster.made).update(fields))

    def start_fails(self, *why: str, of_host: int = 0) -> None:
        """Let the start of the cluster fail, by a fault of the host or of the harness."""
        error = FileNotFoundError(2, *why) if of_host else FloodmarkError(" ".join(why))

        def fail() -> None:
            raise error

        self.prepare.append(lambda cluster: vars(cluster).update(start=fail))

    def looks_fail(self, *why: str) -> None:
        """Let reading the traces fail during the storm."""
        self.prepare.append(lambda cluster: vars(cluster).update(fail_poll=" ".join(why)))

    def node_ends(self, node: str) -> None:
        """End a process by itself when the storm begins."""
        self.prepare.append(lambda cluster: cluster.problems.append(node_ended(node, -9)))

    def node_ends_twice(self, node: str) -> None:
        """End a process after the heal, and the one that is started for it too."""

        def change(cluster: FakeCluster) -> None:
            world = cluster.world

            def ended() -> None:
                world.kill(node)
                cluster.problems.append(node_ended(node, -9))

            def poll() -> list[Any]:
                if world.done.count(f"start {node}") == 1 and world.is_up(node):
                    world.kill(node)
                return []

            cluster.made.after["healed"] = ended
            vars(cluster)["poll"] = poll

        self.prepare.append(change)

    def logs(self, hashes: str = "") -> None:
        """Every replica tells what it has: logs with this hash, or each with another."""

        def change(cluster: FakeCluster) -> None:
            rest = {"base_offset": 0, "leo": 1, "leader_epoch": 1, "role": "leader"}
            for name, nodes in cluster.partitions.items():
                for node in nodes:
                    log = {"hash": hashes or node, "partition": name, **rest}
                    cluster.view.observe({"event": "append", "node": node, **log})

        self.prepare.append(change)

    def busy(self, waits_ms: int) -> None:
        """Between two looks the processes wait so long for a processor."""
        self._waits_s = waits_ms / 1000

    def undelivered(self, node: str, count: int) -> None:
        """Let the links lose so many messages to a node after the heal."""

        def change(cluster: FakeCluster) -> None:
            def poll() -> list[Any]:
                if "healed" in cluster.made.calls:
                    cluster.undelivered[node] = count
                return []

            vars(cluster)["poll"] = poll

        self.prepare.append(change)

    def signal(self, *names: str, after: str = "", kills: int = 0) -> None:
        """Send signals after the clients were asked this, or at the second look at which so many
        nodes were killed."""

        def raise_all() -> None:
            for name in names:
                signal.raise_signal(SIGNALS[name])

        def change(cluster: FakeCluster) -> None:
            looks = count(1)

            def poll() -> list[Any]:
                done = [each for each in cluster.world.done if each.startswith("kill")]
                if len(done) == kills and next(looks) == 2:
                    raise_all()
                return []

            if after:
                cluster.made.after[after] = raise_all
            else:
                vars(cluster)["poll"] = poll

        self.prepare.append(change)

    def run(self) -> list[str]:
        """Carry out the run."""
        system = FakeSystem(lambda cluster: [change(cluster) for change in self.prepare] and None)
        workload = Workload(**self._workload, operations=tuple(self._sends))
        cluster, faults = Cluster(timings=TIMINGS), tuple(self._faults)
        self.schedule = Schedule(cluster=cluster, workload=workload, faults=faults)
        raised = []
        with pytest.MonkeyPatch.context() as patch, Interrupts() as interrupts:
            virtual_time(patch).asleep_s = self._asleep_s
            patch.setattr(storm, "CATCH_UP_S", self._catch_up_ms / 1000)
            looks = count()
            patch.setattr(run, "waited", lambda output: {7: self._waits_s * next(looks)})
            made = Run(
                RunOrder(
                    *(self.schedule, Resolved(system, "hub", "journal"), "x", self.store), seed=1
                ),
                progress=Progress(quiet=True),
                interrupts=interrupts,
            )
            try:
                made.execute()
            except (FloodmarkError, StopNow) as error:
                raised = [f"raised {type(error).__name__} {error}".strip()]
            folder = made.folder.path
            self.info = json.loads((folder / "run.json").read_text())
            faults_said = [json.loads(line) for line in (folder / "faults.jsonl").open()]
        (self.cluster,) = system.made
        assert self.cluster.closed
        record = [f"#{line['fault']} {line['action']}" for line in faults_said]
        problems = [f"{each['kind']}: {each['sentence']}" for each in self.info["problems"]]
        return [
            f"clients: {' '.join(self.cluster.made.calls) or '-'}",
            *[f"nodes: {', '.join(self.cluster.world.done)}"] * bool(self.cluster.world.done),
            *[f"faults: {', '.join(record)}"] * (record != ["#-1 heal"]),
            f"{self.info['state']}, {'stopped' if self.cluster.stopped else 'killed'}",
            *raised,
            *problems,
        ]

    # -- what is left of it

    def phases(self) -> list[str]:
        """Return how long some phases took, and those that were not reached."""
        phases = self.info["phases"]
        took = {
            "start": phases["storm_us"] - phases["start_us"],
            "storm": phases["heal_us"] - phases["storm_us"],
            "healed": phases["stop_writing_us"] - phases["heal_us"],
            "final": phases["end_us"] - phases["final_us"],
        }
        missing = [name.removesuffix("_us") for name, at in phases.items() if not at]
        lengths = ", ".join(f"{name} {us // 1000} ms" for name, us in took.items())
        return [lengths, f"not reached: {' '.join(missing) or '-'}"]
