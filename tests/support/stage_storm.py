"""A storm in the simulated world: a stage of scripts.

Commands add faults to a schedule on one partition (`fault kill on=n1 at_ms=500`), `run` says how
the run ended, and the commands after it look at what happened in the storm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import msgspec

from harness.sim.run import SimResult, simulate
from nemesis import ready_made
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Schedule, Send, Workload
from tests.support.sim_schedules import plan

LEADER: Final = {"partition": "log-0", "role": "leader"}


class StormStage:
    """A schedule and its run. `bug` is one of the cluster, `stop_at` as of `simulate`; `sends`
    replaces the load by so many writes, one after the other, which may end in any way."""

    def __init__(
        self,
        seed: int = 1,
        duration_ms: int = 5000,
        bug: str = "",
        sends: int = 0,
        idempotent: int = 0,
        stop_at: str = "never",
        **cluster: Any,
    ) -> None:
        bugs = {"bugs": (bug,)} if bug else {}
        self.schedule = plan(duration_ms=duration_ms, **bugs, **cluster)
        self._seed = seed
        self._stop_at = stop_at
        self._faults: list[dict[str, Any]] = []
        if sends:
            told = tuple(Send(client="c1", at_ms=10, must="any") for _ in range(sends))
            load = Workload(clients=0, consumers=0, operations=told, timeout_ms=2000)
            load = msgspec.structs.replace(load, duration_ms=duration_ms)
            self.schedule = msgspec.structs.replace(self.schedule, workload=load)
        if idempotent:
            load = msgspec.structs.replace(self.schedule.workload, idempotent=True)
            self.schedule = msgspec.structs.replace(self.schedule, workload=load)
        self.result: SimResult

    # -- commands

    def ready_made(self, name: str, **cluster: Any) -> None:
        """Take a ready-made schedule, with these changes of its cluster."""
        found = ready_made.load(name)
        cluster = msgspec.to_builtins(found.cluster) | cluster
        self.schedule = msgspec.convert(msgspec.to_builtins(found) | {"cluster": cluster}, Schedule)
        self._faults = msgspec.to_builtins(found)["faults"]

    def fault(self, what: str, **fields: Any) -> None:
        """Add a fault; `after` is the event that it waits for."""
        if "after" in fields:
            fields["after"] = {"event": fields["after"], "delay_ms": fields.pop("delay_ms", 0)}
        if "kinds" in fields:
            fields["kinds"] = fields["kinds"].split(",")
            fields["match"] = {"partition": "log-0"}
        if what == "break":
            fields |= {"on": "n1", "event": "append", "match": LEADER, "at_ms": 0}
        flags = {name: True for name, value in fields.items() if value == "yes"}
        self._faults.append({"what": what, **fields, **flags})

    def run(self) -> Iterator[str]:
        """Run: the verdict, faults without effect, processes that ended by themselves."""
        whole = msgspec.to_builtins(self.schedule) | {"faults": self._faults}
        made = schedules.parse(msgspec.json.encode(whole), source="a script")
        stop_at: Any = self._stop_at
        self.result = result = simulate(made, seed=self._seed, stop_at=stop_at)
        yield " ".join([str(result.verdict), *result.broken])
        for line in result.faults:
            if line.action == "missed":
                yield f"fault {line.fault} missed: {line.detail}"
            if line.action == "effect" and line.writes:
                yield f"fault {line.fault} affected writes"
        for end in result.exits:
            if end.by == "itself" or (end.by == "stop" and end.t_us < result.info.phases.final_us):
                how = "" if end.expected else " unexpected"
                yield f"{end.node} ended by {end.by} with {end.code}{how}"
        allowed = {a.name for a in result.checked.anomalies if a.allowed}
        if allowed:
            yield f"allowed: {' '.join(sorted(allowed))}"
        if not result.info.promise.disks_kept:
            yield "disks may lose what they had synced"

    def violations(self) -> list[str]:
        """Return the invariants that were violated, and whether clients could see it."""
        found = {(v.invariant, v.property, v.visible): v for v in reversed(self.result.violations)}
        ordered = sorted(found.values(), key=lambda v: v.t_us)
        return [
            f"{v.invariant} ({v.property}) {'seen by clients' if v.visible else 'inside'}"
            + f": {v.witnesses[0].what}" * bool(v.witnesses)
            for v in ordered
        ] or ["none"]

    def partitions(self) -> list[str]:
        """Return the controller's decisions about the partition in the storm."""
        return unique(
            f"{e['leader'] or 'nobody'} leads {' '.join(e['replicas'])}"
            + "".join(f" {how} {' '.join(e[how])}" for how in ("adding", "removing") if e[how])
            + " unclean" * e["unclean"]
            + f" min_isr {e['min_isr']}" * (e["min_isr"] != 2)
            for e in self._events("partition")
        )

    def decisions(self) -> list[str]:
        """Return who controlled the cluster, who asked for what, and what was decided of the
        partition, from the first moment on."""
        found = []
        for e in self.result.trace:
            match e["event"]:
                case "controller" if e["state"] == "active":
                    found.append(f"{e['node']} controls, term {e['term']}")
                case "partition":
                    isr = f"ISR {' '.join(sorted(e['isr'])) or 'empty'}"
                    leader = f"{e['leader'] or 'nobody'} leads {e['partition']}"
                    found.append(f"{leader}, epoch {e['leader_epoch']}, {isr}")
                case "proposed":
                    found.append(f"{e['node']} asks for {' '.join(sorted(e['isr']))}")
                case "reported":
                    found.append(f"{e['node']} reports {e['leader']}")
                case "witnessed":
                    found.append(f"  {len(e['witnesses'])} against {e['leader']}")
                case "started" if e["incarnation"] > 1:
                    found.append(f"{e['node']} starts again")
                case "truncated":
                    found.append(f"{e['node']} cuts to {e['leo']}: {e['reason']}")
        return unique(found)

    def brokers(self) -> list[str]:
        """Return the brokers that were fenced and unfenced, with times in tenths of a second."""
        return [
            f"{self._tenths(e)} {e['broker']} {e['state']}"
            for e in self._events("broker")
            if e["state"] in ("fenced", "unfenced")
        ]

    def roles(self, role: str) -> str:
        """Count how often each replica took a role in the storm."""
        nodes = [e["node"] for e in self._events("role", partition="log-0", role=role)]
        return " ".join(f"{node} x{nodes.count(node)}" for node in sorted(set(nodes))) or "nobody"

    def processes(self) -> list[str]:
        """Return the processes that began in the storm, with their protocols."""
        return [f"{e['node']}/{e['incarnation']} {e['protocol']}" for e in self._events("started")]

    def log_end(self) -> str:
        """Return the log end that the second process of n1 found on its disk."""
        roles = self._all("role", partition="log-0", node="n1", incarnation=2)
        return str(roles[0]["leo"])

    def copies(self) -> str:
        """Return the followers that appended something."""
        nodes = {e["node"] for e in self._all("append", partition="log-0", role="follower")}
        return " ".join(sorted(nodes)) or "nobody"

    def damage(self) -> list[str]:
        """Damage that brokers named, and whether they cut their logs there."""
        cuts = {(e["node"], e["leo"]) for e in self._all("truncated", reason="damaged")}
        return unique(
            f"{e['node']}: {e['what']}" + ", cut there" * ((e["node"], e["offset"]) in cuts)
            for e in self._all("damaged")
        )

    def sends(self) -> str:
        """Count the outcomes of the sends."""
        ops = self.result.ops
        return " ".join(op.type for op in ops if op.f == "send" and op.type != "invoke")

    def acks(self, start: int = 0, end: int = 60_000, node: str = "") -> str:
        """Return whether anything was acknowledged in these milliseconds of the storm."""
        began_us = self.result.info.phases.storm_us
        chosen = {"node": node} if node else {}
        at_ms = [(e["t_us"] - began_us) // 1000 for e in self._all("ack", **chosen)]
        return "some" if any(start < ms < end for ms in at_ms) else "none"

    def acked_after_the_break(self) -> str:
        """Return the time from breakpoint to first acknowledgement, in tenths of a second."""
        (stop,) = self._all("break")
        first = self._all("ack")[0]
        return f"{round((first['t_us'] - stop['t_us']) / 1e5)} tenths"

    # -- output

    def _all(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        chosen = {"event": event, **fields}.items()
        trace = self.result.trace
        return [e for e in trace if all(e.get(name) == value for name, value in chosen)]

    def _events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        phases = self.result.info.phases
        found = self._all(event, **fields)
        return [e for e in found if phases.storm_us <= e["t_us"] < phases.final_us]

    def _tenths(self, event: dict[str, Any]) -> str:
        return f"{(event['t_us'] - self.result.info.phases.storm_us) / 1e6:.1f} s"


def unique(lines: Iterable[str]) -> list[str]:
    """Return the lines without repetitions."""
    return [line for line, _ in groupby(lines)]
