"""The injector on a recording world: a stage of scripts.

A fault is a command with its kind as name and its fields as options (`kill on=n1 at_ms=10`); values
that begin with a bracket are JSON. So are operations (`send client=c1 at_ms=5`). The output has the
acts on the world ("10 kill n1": at 10 ms) and the record of the nemesis ("#0 inject n1")."""

from __future__ import annotations

import random
import re
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from harness.systems.floodmark.admin import request_of
from harness.systems.floodmark.brokers import check_upgrades, promise_of
from nemesis.faults import KINDS
from nemesis.formats.schedule import parse
from nemesis.links.rule import LinkRule
from nemesis.targets import resolve
from nemesis.view import ClusterView
from nemesis.world import Command
from node.formats import trace
from node.formats.errors import UsageError
from node.formats.event_text import Event
from node.formats.trace import METADATA_PARTITION
from node.runtime.failing_disk import DiskFails
from reports.wording import asked, intent
from tests.support.nemesis_world import CLIENTS, Storm, line_text
from tests.support.stage_events import parsed

OPERATIONS: Final = ("send", "poll")
_KNOWN: Final = re.compile(r" \((known:|it has) [^)]*\)")
"""The names that would have been right."""
PROMISED: Final = {
    "durable_acks": "acknowledged records",
    "committed_kept": "committed records",
    "disks_kept": "synced records",
}


class NemesisStage:
    """One schedule, and the events that its faults wait for. Options are those of the cluster."""

    def __init__(
        self, drawn: int = 0, clients: int = 0, consumers: int = 0, **cluster: Any
    ) -> None:
        self._lines: list[str] = []
        self._faults: list[dict[str, Any]] = []
        self._operations: list[dict[str, Any]] = []
        self._schedule: dict[str, Any] = {
            "floodmark_schedule": 1,
            "drawn": bool(drawn),
            "cluster": cluster,
            "workload": {"clients": clients, "consumers": consumers},
        }

    def __getattr__(self, name: str) -> Any:
        kind = name.replace("_", "-")
        if kind in KINDS:
            return partial(self._add, self._faults, kind)
        if kind in OPERATIONS:
            return partial(self._add, self._operations, kind)
        raise AttributeError(name)

    def _add(self, to: list[dict[str, Any]], what: str, /, **fields: Any) -> None:
        to.append({"what": what} | {name: _value(value) for name, value in fields.items()})

    def _text(self, faults: list[dict[str, Any]]) -> bytes:
        workload = self._schedule["workload"] | {"operations": self._operations}
        return msgspec.json.encode(self._schedule | {"faults": faults, "workload": workload})

    @cached_property
    def storm(self) -> Storm:
        """The schedule in force; no fault can be added to it."""
        storm = Storm(parse(self._text(self._faults)))
        storm.world.log = self._lines
        storm.recorded = lambda line: self._lines.append(line_text(line))
        return storm

    # -- schedules ---------------------------------------------------------------------------------

    def read(self, what: str, /, **fields: Any) -> str:
        """Read a schedule with this fault only: how pages put it, or why it is refused."""
        return self._read([{"what": what} | {name: _value(v) for name, v in fields.items()}])

    def check(self) -> str:
        """Read the whole schedule."""
        return self._read(self._faults)

    def _read(self, faults: list[dict[str, Any]]) -> str:
        try:
            schedule = parse(self._text(faults))
            check_upgrades(schedule)
        except UsageError as error:
            return f"refused: {_KNOWN.sub('', str(error))}"
        assert parse(schedule.to_json()) == schedule
        return "; ".join(f"{intent(fault)} {asked(fault)}" for fault in schedule.faults)

    def promise(self) -> str:
        """Return what brokers cannot promise under the faults so far, and forget these."""
        made = promise_of(parse(self._text(self._faults)))
        self._faults.clear()
        lost = [words for name, words in PROMISED.items() if not getattr(made, name)]
        return f"may lose {', '.join(lost)}" if lost else "keeps all"

    # -- the run -----------------------------------------------------------------------------------

    def run(self, until_ms: int) -> None:
        """Step exactly when asked to."""
        self.storm.run(until_ms)

    def heal(self) -> None:
        """Do the final heal: if every act succeeds, everything is whole after it."""
        self.storm.injector.heal_all()
        world, cluster = self.storm.world, self.storm.cluster
        if not world.broken:
            assert self.storm.injector.active() == ()
            assert (world.paused, world.rules) == (set(), {})
            assert world.up == {*cluster.broker_names(), *cluster.voter_names()}

    def breaks(self, *act: int | str) -> None:
        """Let this act fail from here on."""
        self.storm.world.broken.add(" ".join(map(str, act)))

    def mends(self, *act: int | str) -> None:
        """Let this act succeed again."""
        self.storm.world.broken.remove(" ".join(map(str, act)))

    def declares(self, unsynced: int) -> None:
        """Let nodes have declared files with this many unsynced bytes."""
        self.storm.world.declares_unsynced, self.storm.world.unsynced = True, unsynced

    def dies(self, node: str) -> None:
        """End a process by itself."""
        self.storm.world.up.remove(node)

    def state(self) -> list[str]:
        """Return the faults in force, whether anything is left to do, and the run's problems."""
        injector = self.storm.injector
        over = "nothing is left" if injector.exhausted else "something is left"
        active = ", ".join(injector.active()) or "-"
        return [f"in force: {active}; operated {injector.operated}; {over}", *injector.problems]

    def links(self) -> str:
        """Return the links that the last fault affects."""
        return " ".join(sorted(f"{a}>{b}" for a, b in self.storm.lines[-1]["links"]))

    def rules(self) -> list[str]:
        """Return the rules in force, with all that they say."""
        return [_fields(rule) for rule in self.storm.world.rules.values()]

    def commands(self) -> list[str]:
        """Return the commands to the controller, with all that they say."""
        return [f"{_fields(each)}: {request_of(each)}" for each in self.storm.world.commands]

    def disks(self) -> list[str]:
        """Return the faults and the damages of disks, with all that they say."""
        world = self.storm.world
        damages = [f"{one.what} {one.part} {one.bit:.2f}" for one in world.damages]
        return [*(_fields(each) for each in world.disk_faults.values()), *damages]

    # -- what is seen of the cluster ---------------------------------------------------------------

    def event(self, node: str, name: str, incarnation: int = 1, **fields: Any) -> None:
        """Trace an event now. Fields that are not given are empty."""
        usual = METADATA_PARTITION if name == trace.CONTROLLER else "log-0"
        partition = fields.pop("partition", usual)
        assert fields.keys() <= {*trace.FIELDS[name]}, name
        usual_fields = {field: getattr(Event(name), field, 0) for field in trace.FIELDS[name]}
        whole = usual_fields | parsed(fields)
        self.storm.happens(node, name, partition, incarnation=incarnation, **whole)

    def leads(self, node: str, epoch: int = 1, partition: str = "log-0") -> None:
        self.event(node, "role", role="leader", leader_epoch=epoch, partition=partition)

    def isr(
        self, leader: str, members: str, epoch: int = 1, change: int = -1, partition: str = "log-0"
    ) -> None:
        """Change the in-sync set of a partition; `change` is the partition epoch."""
        at = epoch if change < 0 else change
        more = {"isr": members, "maximal_isr": members, "partition": partition}
        self.event(leader, "isr", leader_epoch=epoch, partition_epoch=at, **more)

    def replicas(self, names: str) -> None:
        """Place a partition, as the controller; its first replica leads."""
        more = {"leader_epoch": 1, "partition_epoch": 1, "min_isr": 1}
        leads = names.partition(",")[0]
        self.event("v1", "partition", leader=leads, isr=names, replicas=names, **more)

    def lost(self, node: str) -> None:
        """Tell the harness that a process ended."""
        self.storm.view.lost(node)

    def view(self, *partitions: str) -> list[str]:
        """Return all that is known of partitions (log-0 unless named), and of the cluster."""
        seen = self.storm.view
        lines = [f"{name}: {partition_text(seen, name)}" for name in partitions or ("log-0",)]
        assert seen.leader(METADATA_PARTITION) == seen.controller()
        words = {"controller": (seen.controller() or "",), "up": seen.up()}
        return [*lines, *_known(words | {"partitions": seen.partitions()})]

    def equal(self, *nodes: str) -> str:
        """Return whether the logs of these nodes are known to be equal."""
        return "equal" if self.storm.view.have_equal_logs("log-0", nodes) else "not known"

    def target(
        self, *targets: str, among: str = "", on: str = "", seeds: int = 1, spare: int = 0
    ) -> list[str]:
        """Return the nodes that targets stand for; with several seeds, all that are drawn."""
        cluster = self.storm.cluster
        everybody = (*cluster.broker_names(), *cluster.voter_names())
        lines = []
        for target in targets:
            found = {
                resolve(
                    target,
                    self.storm.view,
                    cluster,
                    random.Random(seed),
                    among.split(",") if among else everybody,
                    clients=CLIENTS,
                    on=on.split(","),
                    spare_voters=bool(spare),
                )
                for seed in range(seeds)
            }
            drawn = sorted(f"{' '.join(one.nodes) or 'nobody'} {one.partition}" for one in found)
            lines.append(f"{target}: {', '.join(map(str.strip, drawn))}")
        return lines


def _value(value: int | str) -> Any:
    if isinstance(value, int) or not value:
        return value
    return msgspec.json.decode(value) if value[0] in "[{" or value in ("true", "false") else value


def _fields(value: LinkRule | DiskFails | Command) -> str:
    fields = value._asdict() if isinstance(value, tuple) else msgspec.structs.asdict(value)
    return " ".join(f"{name}={of}" for name, of in fields.items() if of)


def _known(words: dict[str, tuple[str, ...]]) -> list[str]:
    found = [f"{name} {' '.join(of)}" for name, of in words.items() if any(of)]
    return ["; ".join(found)] if found else []


def partition_text(view: ClusterView, partition: str) -> str:
    leads = f"{view.leader(partition) or 'nobody'} leads epoch {view.leader_epoch(partition)}"
    sets = {
        "ISR": view.isr(partition),
        "followers": view.followers(partition),
        "lagging": view.lagging(partition),
        "replicas": view.replicas(partition),
    }
    hws = f"HW {view.hw(partition)}, common HW {view.common_hw(partition)}"
    return "; ".join([leads, *_known(sets), hws])
