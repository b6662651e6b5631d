"""The injector: carries the faults of one schedule out on a world, and records what it really did.

It has no clock and no thread. Its caller calls `observe` with each trace event and `step` with the
time, at the latest at the time that the last `step` returned. Nothing is dropped silently: each
fault of the schedule ends in the record as injected (and healed), skipped or missed."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from nemesis.faults.kind import FaultKind, Injected, Site, kind_of
from nemesis.faults.membership import ChangeFault
from nemesis.formats.fault import ROLES_OF_A_PARTITION
from nemesis.formats.fault_log import FINAL_HEAL, Action, FaultLine
from nemesis.formats.schedule import Fault, Operation, Schedule
from nemesis.processes import Processes
from nemesis.targets import Absent, Resolution, resolve
from nemesis.triggers import Triggers
from nemesis.view import ClusterView
from nemesis.world import World
from node.formats import trace
from node.formats.errors import FloodmarkError

_HEAL, _INJECT, _OPERATE, _LOOK, _WAITED = 0, 1, 2, 3, 4
"""What is due at a time, in the order in which it is done. `_WAITED` is added to one of the others:
a trigger whose `within_ms` is over fires without its event."""
LOOK_MS: Final = 100
"""How often a change that is under way is looked at, and a heal that failed is tried again."""
TRIES: Final = 3
"""How often a heal is tried, before the final heal and then again."""
_LOOKS: Final = 20
"""How often a fault looks for a node that has its role, in a session and an election."""
_WHOLE_GROUPS: Final = ("all", "voters", "clients")


class Injector:
    """The execution of one schedule on one world.

    `view` is kept up to date by `observe`; `rng` decides every draw (each fault has a generator of
    its own made from it, so one fault's draws do not change another's); `record` is called with
    each line of faults.jsonl; `clients` are the names of all clients; `voters` those of the nodes
    beside the brokers (None: as in the schedule's cluster). `problems` collects sentences about
    heals and operations that could not be carried out."""

    def __init__(
        self,
        schedule: Schedule,
        world: World,
        view: ClusterView,
        rng: random.Random,
        record: Callable[[FaultLine], None],
        *,
        clients: Sequence[str] = (),
        voters: Sequence[str] | None = None,
    ) -> None:
        self._schedule = schedule
        self._faults = [kind_of(fault) for fault in schedule.faults]
        self._cluster = cluster = schedule.cluster
        voters = cluster.voter_names() if voters is None else voters
        self._nodes = (*cluster.broker_names(), *voters)
        self._world = world
        self._view = view
        self._record = record
        self._clients = tuple(clients)
        self._processes = Processes(world, view)
        self._rngs = [random.Random(rng.getrandbits(64)) for _ in schedule.faults]
        # When, the action, the fault or operation, and, for one node of several, its breakpoint.
        self._due: list[tuple[int, int, int, int]] = []
        self._triggers: dict[int, Triggers] = {}
        for action, due in ((_INJECT, schedule.faults), (_OPERATE, schedule.workload.operations)):
            numbered = list(enumerate(due))
            self._due += [(w.at_ms, action, i, 0) for i, w in numbered if w.at_ms is not None]
            waiting = {i: w.after for i, w in numbered if w.after}
            self._triggers[action] = Triggers(waiting)
            self._limit(action, [i for i, after in waiting.items() if not after.since], 0)
        heapq.heapify(self._due)
        self._fired: list[tuple[int, int]] = []
        self._stopped: list[tuple[int, int]] = []
        self._active: dict[int, Injected] = {}
        self._changing: dict[int, Injected] = {}
        self._tries: Counter[int] = Counter()
        sought_ms = cluster.timings.session_ms + cluster.timings.election_max_ms
        self._look_ms = max(1, sought_ms // _LOOKS)
        self._absent: defaultdict[int, list[str]] = defaultdict(list)
        self._now_ms = 0
        self._begun = False
        self.operated = 0
        self.problems: list[str] = []

    @property
    def exhausted(self) -> bool:
        """Return whether only the final heal is left: no fault or operation waits for its time or
        its end, no breakpoint for its process."""
        unmet = any(
            self._faults[index].of_turns and {*active.held.values()} - {*active.standing}
            for index, active in self._active.items()
        )
        waiting = any(triggers.waiting for triggers in self._triggers.values())
        under_way = self._due or self._fired or self._changing
        return self._begun and not (under_way or unmet or waiting)

    def observe(self, event: dict[str, Any]) -> bool:
        """Take in a trace event. Return True if a fault waited for it: then call `step` at once.
        Before the first `step` the storm has not begun: such events only update the view."""
        self._view.observe(event)
        if not self._begun:
            return False
        if event["event"] == trace.BREAK:
            self._stopped_at(event["number"])
        fired = False
        for action, triggers in self._triggers.items():
            if triggers.waiting:
                for index in triggers.observe(event):
                    self._fired.append((action, index))
                    fired = True
        return fired or bool(self._stopped)

    def step(self, now_ms: int) -> int | None:
        """Do what is due at `now_ms` (milliseconds since the storm began). Return when the next
        step is due; None: only an event can make something due."""
        self._begun = True
        self._now_ms = now_ms
        for action, index in self._fired:
            after = self._waits(action, index).after
            assert after is not None
            heapq.heappush(self._due, (now_ms + after.delay_ms, action, index, 0))
        self._fired.clear()
        for index, number in self._stopped:
            self._act_on_stopped(index, number, now_ms)
        self._stopped.clear()
        while self._due and self._due[0][0] <= now_ms:
            _, action, index, number = heapq.heappop(self._due)
            if action == _OPERATE:
                self._operate(index)
            elif action == _INJECT:
                self._inject(index, now_ms)
            elif action >= _WAITED:
                if self._triggers[action - _WAITED].stop(index):
                    heapq.heappush(self._due, (now_ms, action - _WAITED, index, 0))
            elif action == _LOOK:
                if not self._change_has_ended(index):
                    heapq.heappush(self._due, (now_ms + LOOK_MS, _LOOK, index, 0))
            elif index in self._active:
                self._heal(index, number)
        return self._due[0][0] if self._due else None

    def _begin_to_count(self, name: str, now_ms: int) -> None:
        """Let the triggers count that wait for the fault of this name."""
        for action, triggers in self._triggers.items() if name else ():
            self._limit(action, triggers.begin(name), now_ms)

    def _limit(self, action: int, begun: Sequence[int], now_ms: int) -> None:
        """Note the last moments at which triggers fire that have begun to count."""
        for index in begun:
            due = self._waits(action, index)
            if due.after is not None and due.after.within_ms is not None:
                due_ms = now_ms + due.after.within_ms
                heapq.heappush(self._due, (due_ms, action + _WAITED, index, 0))

    def _waits(self, action: int, index: int) -> Fault | Operation:
        """Return the fault or the operation of a number."""
        due: Sequence[Fault | Operation] = (
            self._schedule.workload.operations if action == _OPERATE else self._schedule.faults
        )
        return due[index]

    def active(self) -> tuple[str, ...]:
        """Return the faults in force now, each as its kind and its nodes."""
        return tuple(
            " ".join([self._faults[index].what, *active.nodes])
            for index, active in self._active.items()
        )

    def heal_all(self) -> None:
        """End the storm: heal all links, bring all nodes up, record faults that never came."""
        start_us = self._world.now_us()
        late = [(act, index) for _, act, index, _ in self._due] + self._fired
        due = {i: "the storm ended before its time" for act, i in late if act == _INJECT}
        self._triggers[_OPERATE].give_up()
        for index, why in sorted((due | self._triggers[_INJECT].give_up()).items()):
            sought = self._absent.get(index)
            action: Action = "skipped" if sought and self._schedule.drawn else "missed"
            self._write(index, action, start_us, detail=sought[-1] if sought else why)
        self._due.clear()
        self._fired.clear()
        nodes = {node for active in self._active.values() for node in active.nodes}
        links = {link for active in self._active.values() for link in active.links}
        for index in list(self._active):
            if isinstance(self._faults[index], ChangeFault):
                # The final heal of members comes last, as a whole.
                nodes.update(self._active.pop(index).nodes)
            else:
                self._heal(index, finally_=True)
        refused = []
        members = filter(self._world.is_member, self._nodes)
        for node in filter(self._processes.needs_repair, members):
            try:
                self._processes.repair(node)
            except FloodmarkError as error:
                refused.append(str(error))
            else:
                nodes.add(node)
        self.problems += [f"final heal: {why}" for why in refused]
        self._write(
            FINAL_HEAL,
            "heal",
            start_us,
            nodes=sorted(nodes),
            links=sorted(links),
            detail="; ".join(refused),
        )

    def _inject(self, index: int, now_ms: int) -> None:
        fault = self._faults[index]
        start_us = self._world.now_us()
        on = self._resolve_on(index)
        try:
            if not on.nodes and fault.has_targets:
                raise Absent(f"nobody is {fault.place} now")
            injected = fault.inject(self._site(index, on))
        except FloodmarkError as error:
            if isinstance(error, Absent) and len(self._absent[index]) < _LOOKS:
                self._absent[index].append(str(error))
                heapq.heappush(self._due, (now_ms + self._look_ms, _INJECT, index, 0))
                return
            self._begin_to_count(fault.name, now_ms)
            self._fail(index, start_us, str(error), on.nodes)
            return
        self._begin_to_count(fault.name, now_ms)
        partition = f"of {on.partition}" if on.partition and ":" not in fault.place else ""
        self._write(
            index,
            "inject",
            start_us,
            nodes=injected.nodes,
            links=injected.links,
            detail="; ".join(filter(None, (partition, injected.detail))),
        )
        if injected.change is not None:
            self._changing[index] = injected
            heapq.heappush(self._due, (now_ms + LOOK_MS, _LOOK, index, 0))
        if fault.lasts:
            self._active[index] = injected
            # The time of a breakpoint counts from when a process stops at it.
            if fault.for_ms is not None and not fault.of_turns:
                heapq.heappush(self._due, (now_ms + fault.for_ms, _HEAL, index, 0))

    def note_outcomes(self) -> None:
        """Record how changes ended that were under way when the storm was over."""
        for index in list(self._changing):
            self._change_has_ended(index)

    def _change_has_ended(self, index: int) -> bool:
        """Record how the change of a fault ended; return whether it has."""
        injected = self._changing.get(index)
        outcome = None
        if injected is not None and injected.change is not None:
            outcome = self._world.outcome(injected.change)
        if injected is None or outcome is None:
            return injected is None
        del self._changing[index]
        unseen = outcome.what == "unseen"
        seen: dict[str, int] = {"installed": 0} if unseen else {outcome.what: 1}
        now_us, nodes = self._world.now_us(), injected.nodes
        self._write(index, "effect", now_us, nodes=nodes, links=(), detail=outcome.detail, **seen)
        return True

    def _stopped_at(self, number: int) -> None:
        """Note that a process has stopped at a breakpoint: `step` acts on it."""
        for index, active in self._active.items():
            if self._faults[index].of_turns and number in active.held:
                active.standing.append(active.held[number])
                self._stopped.append((index, number))

    def _act_on_stopped(self, index: int, number: int, now_ms: int) -> None:
        """Do to a process that stands at a breakpoint what its fault does there, and let its
        `for_ms` count from now."""
        active, fault = self._active.get(index), self._faults[index]
        if active is None or number not in active.held:
            return
        node = active.held[number]
        try:
            fault.stopped(node, self._site(index, Resolution((node,))))
        except FloodmarkError as error:
            self.problems.append(f"fault {index}: {error}")
        if fault.for_ms is not None:
            heapq.heappush(self._due, (now_ms + fault.for_ms, _HEAL, index, number))

    def _undo(self, name: str) -> tuple[str, ...]:
        """Heal the fault of this name; return its nodes. Raises FloodmarkError if it is not in
        force."""
        for index, active in self._active.items():
            if self._faults[index].name == name:
                self._heal(index)
                return active.nodes
        raise FloodmarkError(f"no fault '{name}' is in force")

    def _operate(self, index: int) -> None:
        """Hand an operation to its client; its outcome is in the history."""
        try:
            self._world.operate(index)
        except FloodmarkError as error:
            self.problems.append(f"operation {index}: {error}")
            return
        self.operated += 1

    def _heal(self, index: int, number: int = 0, *, finally_: bool = False) -> None:
        """Heal a fault, or release the node of its breakpoint `number` while others remain. If that
        fails it is tried again, until it is given up at the final heal."""
        active, fault = self._active[index], self._faults[index]
        start_us = self._world.now_us()
        if number and len(active.held) > 1:
            if number in active.held:
                self._release(index, number)
            return
        site = self._site(index, Resolution(active.nodes))
        healed = fault.heal(active, site)
        if healed.failed and not finally_:
            self._tries[index] += 1
            if self._tries[index] < TRIES:
                heapq.heappush(self._due, (self._now_ms + LOOK_MS, _HEAL, index, 0))
            return
        for _ in range(TRIES - 1):
            if healed.failed:
                healed = fault.heal(active, site)
        del self._active[index]
        self.problems += [
            f"fault {index} ({' '.join([fault.what, *active.nodes])}) is still in force: {why}"
            for why in dict.fromkeys(healed.failed)
        ]
        self._write(
            index, "heal", start_us, nodes=healed.nodes, links=active.links, detail=healed.detail
        )
        if healed.effect is not None:
            self._write(
                index,
                "effect",
                start_us,
                nodes=healed.effect.nodes,
                links=active.links,
                detail=healed.effect.detail,
                **healed.effect.counts,
            )

    def _release(self, index: int, number: int) -> None:
        active = self._active[index]
        site = self._site(index, Resolution((active.held[number],)))
        try:
            self._faults[index].release(active, number, site, [])
        except FloodmarkError:
            heapq.heappush(self._due, (self._now_ms + LOOK_MS, _HEAL, index, number))

    def _site(self, index: int, on: Resolution) -> Site:
        return Site(
            number=index,
            nodes=on.nodes,
            world=self._world,
            view=self._view,
            cluster=self._cluster,
            clients=self._clients,
            processes=self._processes,
            rng=self._rngs[index],
            others=lambda target: self._resolve_to(index, target, on),
            undo=self._undo,
        )

    def _resolve_on(self, index: int) -> Resolution:
        """Return the nodes of a fault: roles stand for nodes that the fault can act on."""
        fault = self._faults[index]
        if not fault.has_targets:
            return Resolution(())
        return resolve(
            fault.place,
            self._view,
            self._cluster,
            self._rngs[index],
            self._able(fault),
            clients=self._clients,
            busy={node for active in self._active.values() for node in active.nodes},
            spare_voters=self._schedule.drawn,
        )

    def _able(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the nodes that a role may stand for: members, unless the fault is about others."""
        found = kind.candidates(self._world, self._nodes)
        outside = isinstance(kind, ChangeFault)
        return tuple(node for node in found if outside or self._world.is_member(node))

    def _resolve_to(self, index: int, target: str, on: Resolution) -> tuple[str, ...]:
        """Return the other end of a link fault. Dead nodes count too, because link rules survive
        restarts."""
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
        """Record a fault without effect: normal in a drawn storm, a flaw of a written schedule."""
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
        fault = None if index == FINAL_HEAL else self._faults[index]
        line = FaultLine(
            fault=index,
            what="" if fault is None else fault.what,
            action=action,
            t_us=start_us,
            done_us=self._world.now_us(),
            on="" if fault is None else fault.place,
            nodes=tuple(nodes),
            links=tuple(links),
            detail=detail,
            **counts,
        )
        self._record(line)
