"""The injector: carries the faults of one schedule out on a world, and records what it really did.

It has no clock and no thread. Whoever drives it calls `observe` with each trace event and `step`
with the time, at the latest when the last `step` said. Nothing is dropped silently: each fault of
the schedule ends in the record as injected (and healed), skipped or missed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from nemesis.faults.admin import Command, command_of
from nemesis.faults.links import LinkFault, is_link_fault, links_of, rules_for
from nemesis.faults.processes import Done, ProcessFaults
from nemesis.formats.fault_log import FINAL_HEAL, Action, FaultLine
from nemesis.formats.schedule import (
    ROLES_OF_A_PARTITION,
    Break,
    Fault,
    Kill,
    Operation,
    Pause,
    PowerCut,
    Release,
    Schedule,
    Stop,
    Upgrade,
)
from nemesis.links.rule import Counts, LinkRule
from nemesis.targets import Resolution, resolve
from nemesis.triggers import Triggers
from nemesis.view import ClusterView
from nemesis.world import World
from node.formats import trace
from node.formats.errors import FloodmarkError

_HEAL, _INJECT, _OPERATE = 0, 1, 2
_WHOLE_GROUPS: Final = ("all", "voters", "clients")


@dataclass(frozen=True)
class _Active:
    """A fault that was injected and not yet healed."""

    fault: Fault
    nodes: tuple[str, ...]
    rules: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    points: dict[int, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)


class Injector:
    """Carries out one schedule, once.

    `view` is fed by `observe`; `rng` decides every draw (each fault has a generator of its own
    made from it, so one fault's draws do not move another's); `record` takes the lines of
    faults.jsonl; `clients` are the names of all clients. `problems` collects sentences
    about heals that could not be carried out.
    """

    def __init__(
        self,
        schedule: Schedule,
        world: World,
        view: ClusterView,
        rng: random.Random,
        record: Callable[[FaultLine], None],
        *,
        clients: Sequence[str] = (),
    ) -> None:
        self._schedule = schedule
        self._cluster = schedule.cluster
        self._nodes = (*self._cluster.broker_names(), *self._cluster.voter_names())
        self._world = world
        self._view = view
        self._record = record
        self._clients = tuple(clients)
        self._processes = ProcessFaults(world, view)
        self._rngs = [random.Random(rng.getrandbits(64)) for _ in schedule.faults]
        self._agenda: list[tuple[int, int, int]] = []
        self._triggers: dict[int, Triggers] = {}
        for action, due in ((_INJECT, schedule.faults), (_OPERATE, schedule.workload.operations)):
            numbered = list(enumerate(due))
            self._agenda += [(w.at_ms, action, i) for i, w in numbered if w.at_ms is not None]
            self._triggers[action] = Triggers({i: w.after for i, w in numbered if w.after})
        heapq.heapify(self._agenda)
        self._fired: list[tuple[int, int]] = []
        self._expiring: list[int] = []
        self._active: dict[int, _Active] = {}
        self._begun = False
        self.operated = 0
        self.problems: list[str] = []

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to be done before the final heal: no fault or operation waits
        for its time, none for its end, no breakpoint for its process."""
        unmet = any(a.points and not a.stopped for a in self._active.values())
        waiting = any(triggers.waiting for triggers in self._triggers.values())
        return self._begun and not (self._agenda or self._fired or unmet or waiting)

    def observe(self, event: dict[str, Any]) -> bool:
        """Take in a trace event; True when something waited for it: then call `step` at once.

        Before the first `step` the storm has not begun: such events only inform the view.
        """
        self._view.observe(event)
        if not self._begun:
            return False
        if event["event"] == trace.BREAK:
            self._stopped_at(event["number"])
        fired = [
            (action, index)
            for action, triggers in self._triggers.items()
            for index in triggers.observe(event)
        ]
        self._fired += fired
        return bool(fired or self._expiring)

    def step(self, now_ms: int) -> int | None:
        """Do what is due at `now_ms` (since the storm began); returns when to come again.

        None: only an event can make something due.
        """
        self._begun = True
        for action, index in self._fired:
            due: Fault | Operation = (
                self._schedule.workload.operations[index]
                if (action == _OPERATE)
                else self._schedule.faults[index]
            )
            assert due.after is not None
            heapq.heappush(self._agenda, (now_ms + due.after.delay_ms, action, index))
        for index in self._expiring:
            for_ms = self._schedule.faults[index].for_ms
            heapq.heappush(self._agenda, (now_ms + (for_ms or 0), _HEAL, index))
        self._fired.clear()
        self._expiring.clear()
        while self._agenda and self._agenda[0][0] <= now_ms:
            _, action, index = heapq.heappop(self._agenda)
            if action == _OPERATE:
                self._operate(index)
            elif action == _INJECT:
                self._inject(index, now_ms)
            elif index in self._active:
                self._heal(index)
        return self._agenda[0][0] if self._agenda else None

    def active(self) -> tuple[str, ...]:
        """The faults in force now, in a few words each."""
        return tuple(
            " ".join([_what(active.fault), *active.nodes]) for active in self._active.values()
        )

    def heal_all(self) -> None:
        """End the storm: whole links, everybody up and running. What did not come is missed."""
        start_us = self._world.now_us()
        late = [(act, index) for _, act, index in self._agenda] + self._fired
        due = {i: "the storm ended before its time" for act, i in late if act == _INJECT}
        self._triggers[_OPERATE].give_up()
        for index, why in sorted((due | self._triggers[_INJECT].give_up()).items()):
            self._write(index, "missed", start_us, detail=why)
        self._agenda.clear()
        self._fired.clear()
        nodes = {node for active in self._active.values() for node in active.nodes}
        links = {link for active in self._active.values() for link in active.links}
        for index in list(self._active):
            self._heal(index)
        mended, refused, _ = self._processes.heal_all(self._nodes)
        self.problems += [f"final heal: {why}" for why in refused]
        self._write(
            FINAL_HEAL,
            "heal",
            start_us,
            nodes=sorted(nodes.union(mended)),
            links=sorted(links),
            detail="; ".join(refused),
        )

    def _inject(self, index: int, now_ms: int) -> None:
        fault = self._schedule.faults[index]
        start_us = self._world.now_us()
        on = self._resolve_on(index)
        if not on.nodes and hasattr(fault, "on"):
            self._fail(index, start_us, f"nobody is {_on(fault)} now")
            return
        if isinstance(fault, Release):
            self._release(index, fault, start_us)
            return
        command = command_of(fault, self._view, self._cluster)
        if command is not None:
            self._command(index, command, start_us)
            return
        detail = f"of {on.partition}" if on.partition and ":" not in _on(fault) else ""
        refused: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        if isinstance(fault, Break):
            active = self._arm(index, fault, on.nodes, start_us)
        elif is_link_fault(fault):
            active = self._inject_links(index, cast(LinkFault, fault), on, start_us)
        else:
            done, refused, notes = self._inject_processes(index, fault, on.nodes)
            active = _Active(fault, done) if done else None
            if active is None:
                self._fail(index, start_us, "; ".join(refused), on.nodes)
        if active is None:
            return
        self._write(
            index,
            "inject",
            start_us,
            nodes=active.nodes,
            links=active.links,
            detail="; ".join(filter(None, (detail, *notes, *refused))),
        )
        if is_link_fault(fault) or isinstance(fault, Kill | PowerCut | Stop | Pause | Break):
            self._active[index] = active
            if fault.for_ms is not None and not isinstance(fault, Break):
                heapq.heappush(self._agenda, (now_ms + fault.for_ms, _HEAL, index))

    def _inject_processes(self, index: int, fault: Fault, nodes: Sequence[str]) -> Done:
        if isinstance(fault, Upgrade):
            return self._processes.upgrade(index, nodes, fault.protocol)
        if not isinstance(fault, PowerCut):
            return self._processes.inject(_what(fault), index, nodes)
        percent, rng = fault.keep_percent, self._rngs[index]
        return self._processes.power_cut(
            index, nodes, lambda: rng.random() if percent is None else percent / 100
        )

    def _arm(self, index: int, fault: Break, nodes: Sequence[str], start_us: int) -> _Active | None:
        """Arm a breakpoint on every node, or on none."""
        points: dict[int, str] = {}
        try:
            for node in nodes:
                points[self._world.add_breakpoint(node, fault)] = node
        except FloodmarkError as error:
            for number, node in points.items():
                with suppress(FloodmarkError):
                    self._world.remove_breakpoint(node, number)
            self._fail(index, start_us, str(error), nodes)
            return None
        return _Active(fault, tuple(nodes), points=points)

    def _stopped_at(self, number: int) -> None:
        """A process has come to a breakpoint: `for_ms` counts from now."""
        for index, active in self._active.items():
            if number in active.points:
                active.stopped.append(active.points[number])
                if active.fault.for_ms is not None:
                    self._expiring.append(index)

    def _release(self, index: int, fault: Release, start_us: int) -> None:
        """Undo the fault that is meant, if it is in force."""
        found = [i for i, active in self._active.items() if active.fault.name == fault.of]
        if not found:
            self._fail(index, start_us, f"no fault '{fault.of}' is in force")
            return
        nodes = self._active[found[0]].nodes
        self._heal(found[0])
        self._write(index, "inject", start_us, nodes=nodes)

    def _command(self, index: int, command: Command, start_us: int) -> None:
        """Ask the controller; a command that changed nothing has no effect to speak of."""
        try:
            self._world.command(command)
        except FloodmarkError as error:
            self._fail(index, start_us, str(error))
            return
        self._write(index, "inject", start_us, detail=" ".join(command.replicas))

    def _operate(self, index: int) -> None:
        """Hand an operation to its client; the history tells the rest."""
        try:
            self._world.operate(index)
        except FloodmarkError as error:
            self.problems.append(f"operation {index}: {error}")
            return
        self.operated += 1

    def _inject_links(
        self, index: int, fault: LinkFault, on: Resolution, start_us: int
    ) -> _Active | None:
        """Put the rules of a link fault in force, all or none."""
        to = self._resolve_to(index, on)
        rules = rules_for(fault, on.nodes, to, self._cluster, self._clients, self._rngs[index])
        if not rules:
            whom = getattr(fault, "to", "")
            why = f"nobody else is {whom} now" if whom else "too few brokers for it"
            self._fail(index, start_us, why, on.nodes)
            return None
        numbers: list[int] = []
        try:
            numbers.extend(map(self._world.add_rule, rules))
        except FloodmarkError as error:
            for number in numbers:
                with suppress(FloodmarkError):
                    self._world.remove_rule(number)
            self._fail(index, start_us, str(error), on.nodes)
            return None
        return _Active(fault, _touched(on.nodes, rules), tuple(numbers), tuple(links_of(rules)))

    def _heal(self, index: int) -> None:
        active = self._active.pop(index)
        start_us = self._world.now_us()
        if isinstance(active.fault, Break):
            self._disarm(index, active, start_us)
            return
        if not is_link_fault(active.fault):
            done = self._processes.heal(_what(active.fault), index, active.nodes)
            self._write(index, "heal", start_us, nodes=done.nodes, detail="; ".join(done.refused))
            return
        counts, failed = Counts(), []
        for number in active.rules:
            try:
                counts.add(self._world.remove_rule(number))
            except FloodmarkError as error:
                failed.append(str(error))
        self.problems += [f"heal of fault {index}: {why}" for why in failed]
        links = active.links
        self._write(
            index, "heal", start_us, nodes=active.nodes, links=links, detail="; ".join(failed)
        )
        self._write(
            index,
            "effect",
            start_us,
            nodes=active.nodes,
            links=links,
            detail=f"{counts.matched} messages met it",
            dropped=counts.dropped,
            delayed=counts.delayed + counts.held,
            **({"duplicated": counts.duplicated} if counts.duplicated else {}),
        )

    def _disarm(self, index: int, active: _Active, start_us: int) -> None:
        """Let go who stands at a breakpoint."""
        failed = []
        for number, node in active.points.items():
            try:
                self._world.remove_breakpoint(node, number)
            except FloodmarkError as error:
                failed.append(f"{node}: {error}")
        self.problems += [f"heal of fault {index}: {why}" for why in failed]
        self._write(index, "heal", start_us, nodes=active.nodes, detail="; ".join(failed))
        self._write(index, "effect", start_us, nodes=active.stopped, stopped=len(active.stopped))

    def _resolve_on(self, index: int) -> Resolution:
        """Whom a fault hits: roles stand for nodes that the fault can act on."""
        fault = self._schedule.faults[index]
        if not hasattr(fault, "on"):
            return Resolution(())
        world = self._world
        match _what(fault):
            case "restart" | "upgrade":
                among = self._nodes
            case "resume":
                among = tuple(node for node in self._nodes if world.is_paused(node))
            case "pause":
                among = tuple(
                    node for node in self._nodes if world.is_up(node) and not world.is_paused(node)
                )
            case _:
                among = tuple(node for node in self._nodes if world.is_up(node))
        return resolve(
            _on(fault),
            self._view,
            self._cluster,
            self._rngs[index],
            among,
            clients=self._clients,
            spare_voters=self._schedule.drawn,
        )

    def _resolve_to(self, index: int, on: Resolution) -> tuple[str, ...]:
        """The other end of a link fault: dead nodes count too, rules outlive them."""
        target = getattr(self._schedule.faults[index], "to", "")
        if not target:
            return ()
        if target in ROLES_OF_A_PARTITION and on.partition:
            target = f"{target}:{on.partition}"
        among = [n for n in self._nodes if target in _WHOLE_GROUPS or n not in on.nodes]
        return resolve(
            target,
            self._view,
            self._cluster,
            self._rngs[index],
            among,
            clients=self._clients,
            on=on.nodes,
        ).nodes

    def _fail(self, index: int, start_us: int, why: str, nodes: Sequence[str] = ()) -> None:
        """A fault without effect: no matter in a drawn storm, a flaw in a written schedule."""
        action: Action = "skipped" if self._schedule.drawn else "missed"
        self._write(index, action, start_us, nodes=nodes, detail=why)

    def _write(
        self,
        index: int,
        action: Action,
        start_us: int,
        *,
        nodes: Sequence[str] = (),
        links: Sequence[tuple[str, str]] = (),
        detail: str = "",
        **counts: int,
    ) -> None:
        fault = None if index == FINAL_HEAL else self._schedule.faults[index]
        line = FaultLine(
            fault=index,
            what="" if fault is None else _what(fault),
            action=action,
            t_us=start_us,
            done_us=self._world.now_us(),
            on="" if fault is None else _on(fault),
            nodes=tuple(nodes),
            links=tuple(links),
            detail=detail,
            **counts,
        )
        self._record(line)


def _what(fault: Fault) -> str:
    return str(fault.__struct_config__.tag)


def _on(fault: Fault) -> str:
    return str(getattr(fault, "on", getattr(fault, "partition", "")))


def _touched(on: tuple[str, ...], rules: Sequence[LinkRule]) -> tuple[str, ...]:
    """The nodes a link fault is about: those it is on, or all it touches when it is on nobody."""
    return on or tuple(
        sorted({node for rule in rules for node in (*rule.senders, *rule.receivers)})
    )
