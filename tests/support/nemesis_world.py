"""A world for the injector that only writes down what is done to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Cluster, Schedule
from nemesis.injector import Injector
from nemesis.links.rule import Counts, LinkRule
from nemesis.view import ClusterView
from nemesis.world import CallFails, Command, DiskCopy, Lasting, World
from node.formats import trace
from node.formats.errors import FloodmarkError
from node.runtime.breakpoints import Breakpoint
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

CLIENTS = ("c1", "c2")
COUNTS = ("dropped", "delayed", "duplicated", "stopped", "writes", "calls")


class RecordingWorld(World):
    """Processes as three sets, links as a dict; `log` has a line for each act: "100 kill n1"."""

    def __init__(self, cluster: Cluster) -> None:
        self.now_ms = 0
        self.up = {*cluster.broker_names(), *cluster.voter_names()}
        self.paused: set[str] = set()
        self.rules: dict[int, LinkRule] = {}
        self.points: dict[int, str] = {}
        self.disk_faults: dict[int, DiskFails] = {}
        self.damages: list[DiskDamage] = []
        self.writes = 3
        self.unsynced = 1000
        self.last_rule = 0
        self.commands: list[Command] = []
        self.log: list[str] = []
        self.broken: set[str] = set()
        """Acts that fail: "start n1", "add_rule", "remove_rule"."""

    def _act(self, what: str, node: str = "") -> None:
        act = f"{what} {node}".strip()
        if act in self.broken:
            raise FloodmarkError(f"cannot {act}")
        self.log.append(f"{self.now_ms} {act}")

    def kill(self, node: str) -> None:
        self._act("kill", node)
        self.up.remove(node)
        self.paused.discard(node)

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        self._act("power_cut", node)
        self.up.discard(node)
        self.paused.discard(node)
        return self.unsynced, round(self.unsynced * keep)

    def start(self, node: str) -> None:
        assert node not in self.up
        self._act("start", node)
        self.up.add(node)

    def stop(self, node: str) -> None:
        assert node not in self.paused, "a paused process hears nothing"
        self._act("stop", node)
        self.up.remove(node)

    def pause(self, node: str) -> None:
        assert node in self.up - self.paused
        self._act("pause", node)
        self.paused.add(node)

    def resume(self, node: str) -> None:
        assert node in self.paused
        self._act("resume", node)
        self.paused.remove(node)

    def is_up(self, node: str) -> bool:
        return node in self.up

    def is_paused(self, node: str) -> bool:
        return node in self.paused

    def add(self, node: str, what: Lasting) -> int:
        match what:
            case LinkRule():
                self._act("add_rule", f"{','.join(what.senders)}>{','.join(what.receivers)}")
                self.rules[self.last_rule + 1] = what
            case Breakpoint():
                self._act("add_breakpoint", node)
                self.points[self.last_rule + 1] = node
            case DiskFails():
                self._act(f"add_disk_fault {what.what}", node)
                self.disk_faults[self.last_rule + 1] = what
            case DiskCopy():
                self._act("copy_disk", node)
            case CallFails():
                self._act(f"add_call_fault {what.action}", node)
        self.last_rule += 1
        return self.last_rule

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        match what:
            case LinkRule():
                if "remove_rule" in self.broken:
                    raise FloodmarkError("the link hub has ended")
                del self.rules[number]
                self.log.append(f"{self.now_ms} remove_rule {number}")
                return Counts(matched=10 * number, dropped=number, delayed=2, held=1)
            case Breakpoint():
                assert self.points.pop(number) == node
                return self._act("remove_breakpoint", node)
            case DiskFails():
                self._act(f"remove_disk_fault {self.disk_faults[number].what}", node)
                del self.disk_faults[number]
            case DiskCopy():
                assert node not in self.up, "a process has the disk"
                self._act("restore_disk", node)
            case CallFails():
                self._act("remove_call_fault", node)
        return self.writes

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        assert node not in self.up, "a process has the disk"
        self._act(f"damage_disk {damage.what}", node)
        self.damages.append(damage)
        return "something is damaged"

    def shift_clock(self, node: str, by_ms: int) -> None:
        self._act(f"shift_clock {by_ms}", node)

    def set_clock_rate(self, node: str, percent: int) -> None:
        self._act(f"set_clock_rate {percent}", node)

    def operate(self, operation: int) -> None:
        self._act("operate", str(operation))

    def command(self, command: Command) -> None:
        self._act(command.what, " ".join((command.partition, *command.replicas)))
        self.commands.append(command)

    def set_protocol(self, node: str, protocol: str) -> None:
        self._act(f"set_protocol {protocol}", node)

    def now_us(self) -> int:
        return self.now_ms * 1000


class Storm:
    """One schedule on a recording world, driven by virtual time."""

    def __init__(self, schedule: Schedule) -> None:
        self.cluster = schedule.cluster
        self.recorded: Callable[[FaultLine], None] = lambda line: None
        self.world = RecordingWorld(schedule.cluster)
        self.view = ClusterView()
        self.lines: list[dict[str, Any]] = []
        self.injector = Injector(
            schedule, self.world, self.view, random.Random(1), self._record, clients=CLIENTS
        )

    def _record(self, line: FaultLine) -> None:
        self.lines.append(msgspec.json.decode(msgspec.json.encode(line)))
        self.recorded(line)

    def run(self, until_ms: int) -> None:
        """Step exactly when asked to, up to `until_ms`."""
        due = self.injector.step(self.world.now_ms)
        while due is not None and due <= until_ms:
            assert due > self.world.now_ms
            self.world.now_ms = due
            due = self.injector.step(due)
        self.world.now_ms = until_ms
        self.injector.step(until_ms)

    def happens(
        self,
        node: str,
        name: str,
        partition: str | None = None,
        *,
        incarnation: int = 1,
        **fields: Any,
    ) -> None:
        stamp = {"t_us": self.world.now_us(), "node": node, "incarnation": incarnation}
        if self.injector.observe(stamp | trace.event(name, partition, **fields)):
            self.injector.step(self.world.now_ms)

    def record(self) -> list[str]:
        """Return the record in short: "#0 inject n1" is fault, action and nodes."""
        return [line_text(msgspec.convert(line, FaultLine)) for line in self.lines]


def line_text(line: FaultLine) -> str:
    """Return a line of the record: the fault, what was done, to whom, and what came of it."""
    nodes = ",".join(line.nodes)
    aim = f" on {line.on}" if line.on not in ("", nodes) else ""
    text = f"#{line.fault} {line.action} {nodes}".strip() + aim
    text += f": {line.detail}" if line.detail else ""
    counts = {name: getattr(line, name) for name in COUNTS}
    said = [f"{name} {of}" for name, of in counts.items() if of is not msgspec.UNSET]
    return f"{text} ({', '.join(said)})" if said else text
