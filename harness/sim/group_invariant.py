"""Invariants of the coordinator of groups, checked at every step: its live state is what its log
makes, and a partition has one owner. Rules about its decisions and answers, from docs/delivery.md
("A coordinator of our own")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from checker.formats.verdict import Witness
from harness.sim.invariant_checker import InvariantChecker
from harness.sim.step import BrokerStep
from node.core.broker import Broker
from node.core.groups.coordinator import Coordinator
from node.core.groups.decide import JOINS, LEAVES
from node.core.groups.state import MEMBER, CoordinatorState, MemberState
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import Replica
from node.formats import trace
from node.formats.messages import Error, GroupHeartbeat, GroupResponse, OffsetCommit
from node.formats.trace import GROUPS_PARTITION, TraceEvent

_CHANGES: Final = frozenset({trace.APPEND, trace.GROUP_STATE})
_LATER: Final = (
    *(Error.LEADERSHIP_LOST, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.OVERLOADED),
)
"""Errors of an answer whose decision came before."""


class GroupRules:
    """A memory of the answers that wait: their coordinator, and its log end at the decision."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str, int], tuple[Coordinator, int]] = {}

    def request(self, s: BrokerStep, able: bool, was: MemberState | None) -> str:
        """Return what is wrong with the decision of a request of a member that `was`, by a
        coordinator that was `able` to decide. A member gives up what it lacks, if it knows the
        target; and a partition that is given up is free."""
        m, c = s.message, s.core.coordinator
        if c is None or c.state is None or not c.serving:
            return ""
        place = s.node, s.source, m.corr
        waits = place in self._due and self._due[place][0] is c  # the network made a copy
        if not waits:
            self._due[place] = c, c.applied
        if able and not waits and (wrong := _unlike(s, c, _error(m, was))):
            return wrong
        now = c.state.values.get((MEMBER, m.group, m.member))
        if not isinstance(m, GroupHeartbeat) or m.epoch in (JOINS, LEAVES) or not (was and now):
            return ""
        gone, knows = {*was.owned} - {*now.owned}, m.group_epoch == c.state.group(m.group).epoch
        if gone and (not knows or gone & {*m.owned}):
            return f"took {sorted(gone)} from {m.member}, which did not give it up"
        return ""

    def answer(self, s: BrokerStep, to: str, m: GroupResponse) -> str:
        """Return that an answer states what is not committed, "" if all of it is."""
        r = s.core.replicas.get(m.partition)
        which, end = self._due.pop((s.node, to, m.corr), (None, 0))
        if r is None or m.error or which is not s.core.coordinator or end <= r.hw:
            return ""
        return f"answered {to} from the log below {end}, of which {r.hw} is committed"


def before_group(core: Broker, m: Any) -> tuple[bool, MemberState | None]:
    """Return whether a coordinator is able to decide a request, and the state of its member."""
    c, r = core.coordinator, core.replicas.get(GROUPS_PARTITION)
    if c is None or r is None or c.state is None:
        return False, None
    found, p = c.state.values.get((MEMBER, m.group, m.member)), r.protocol
    refuses = p.commit is Commit.ISR and p.below_min_isr is BelowMinIsr.REFUSE
    leads = r.role == "leader" and r.leader_epoch == c.epoch and c.serving
    able = leads and not (refuses and len(r.isr) < r.min_isr)
    return able, found if isinstance(found, MemberState) else None


def _error(m: Any, was: MemberState | None) -> Error:
    """Return why a coordinator that can decide refuses a request (KIP-848, KIP-1251)."""
    heartbeat = isinstance(m, GroupHeartbeat)
    if heartbeat and m.epoch in (JOINS, LEAVES):
        return Error.NONE
    if was is None:
        return Error.UNKNOWN_MEMBER
    if heartbeat:
        fenced = m.epoch not in (was.epoch, was.previous)
    else:
        named = m.offsets if isinstance(m, OffsetCommit) else m.partitions
        owns = all(was.owned.get(partition, m.epoch + 1) <= m.epoch for partition in named)
        fenced = m.epoch > was.epoch or not owns
    return Error.FENCED_MEMBER_EPOCH if fenced else Error.NONE


def _unlike(s: BrokerStep, c: Coordinator, error: Error) -> str:
    """Return that a decision is not refused with `error`, or not answered although it is committed;
    "" if it is as it should be."""
    m, r = s.message, s.core.replicas[GROUPS_PARTITION]
    said = next((each for each in s.sent(GroupResponse, s.source) if each.corr == m.corr), None)
    if said is None:
        due = error or c.applied <= r.hw
        return f"did not answer {s.source}: {error or 'no error'}" if due else ""
    if said.error is error or said.error in _LATER:
        return ""
    return f"answered {s.source} with {said.error or 'no error'}, not {error or 'no error'}"


class GroupInvariant:
    """A check of each turn's trace events. `broker(name)` returns a node's running core."""

    def __init__(self, broker: Callable[[str], Broker | None], checker: InvariantChecker) -> None:
        self._broker = broker
        self._checker = checker
        # By node: its live state, what its log made, and up to where.
        self._made: dict[str, tuple[CoordinatorState, CoordinatorState, int]] = {}

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check a coordinator whose state a node's turn may have changed."""
        if any(e.get("partition") == GROUPS_PARTITION and e["event"] in _CHANGES for e in events):
            broker = self._broker(node)
            r = None if broker is None else broker.replicas.get(GROUPS_PARTITION)
            if broker is not None and broker.coordinator is not None and r is not None:
                live = broker.coordinator.state
                if live is not None and r.log.damage is None:
                    self._check(node, r, live)

    def _check(self, node: str, r: Replica, live: CoordinatorState) -> None:
        known = self._made.get(node)
        if known is None or known[0] is not live or known[2] > r.leo:
            known = (live, CoordinatorState(), r.log.start)
        _, made, end = known
        made.replay(r.log, end, r.leo)
        self._made[node] = (live, made, r.leo)
        keys = sorted({*made.values, *live.values}) if made.values != live.values else []
        differing = [key for key in keys if made.values.get(key) != live.values.get(key)]
        if differing:
            what = f"than its log makes, at first in {' '.join(differing[0])}"
            self._violated("groups-as-in-log", node, r, f"{node} has another state {what}")
        elif self._checker.committed_stays and (twice := _owned_twice(made)):
            self._violated("one-owner", node, r, f"{' and '.join(twice)} both own a partition")

    def _violated(self, invariant: str, node: str, r: Replica, sentence: str) -> None:
        witness = Witness(what="log end", node=node, offset=-1, epoch=r.leader_epoch)
        self._checker.violated(invariant, GROUPS_PARTITION, sentence, [witness])


def _owned_twice(state: CoordinatorState) -> list[str]:
    """Return the first two members of a group that own the same partition; none if none do."""
    owners: dict[tuple[str, str], str] = {}
    for key in sorted(key for key in state.values if key[0] == MEMBER):
        for partition in state.values[key].owned:
            other = owners.setdefault((key[1], partition), key[2])
            if other != key[2]:
                return [other, key[2]]
    return []
