"""The steps of a trace that break a rule of replication (`RULES` in `checker.formats.story`). Pure.

Real and simulated brokers write the same events, so both are judged here. The invariant checker of
the simulated world looks at the state of every broker; this module sees only their events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from checker.checks.findings import listing
from checker.checks.leaders import may_lead
from checker.story.replica_logs import LogBatch, ReplicaLogs
from harness.formats.run_info import Promise
from node.formats import trace
from node.formats.event_text import Event, offsets

ALL: Final = -1
EVERYTHING: Final = 2**62
_VOTED: Final = frozenset({"quorum", "quorum-naive", "quorum-push"})


class BrokenRule(NamedTuple):
    """An event that breaks `rule`, for the records at the offsets low .. high-1; `why` continues
    the sentence about the event."""

    event: Event
    rule: str
    why: str
    low: int = 0
    high: int = EVERYTHING


@dataclass
class RuleReader:
    """A reader of the events of one partition, and of those about processes and brokers, in order
    of time: it finds the events that break a rule of replication."""

    promise: Promise
    damaged: Mapping[str, int] = field(default_factory=dict)
    """When a fault first damaged the disk of each node; it did not forget what that took."""
    voted: bool = False
    protocol: str = ""
    replicas: ReplicaLogs = field(default_factory=ReplicaLogs)
    hw: int = 0
    committed: list[LogBatch] = field(default_factory=list)
    state: Event | None = None
    fenced: set[str] = field(default_factory=set)
    leaders: dict[int, str] = field(default_factory=dict)
    leads_from: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    isr: dict[str, tuple[str, ...]] = field(default_factory=dict)
    votes: dict[tuple[str, int], str] = field(default_factory=dict)
    proposals: list[Event] = field(default_factory=list)
    knows: dict[str, int] = field(default_factory=dict)
    """The partition epoch that each node knows."""
    pending: dict[str, tuple[str, ...]] = field(default_factory=dict)
    follows: dict[str, str] = field(default_factory=dict)
    reports: dict[str, Event] = field(default_factory=dict)
    witnessed: Event | None = None
    noticed: set[str] = field(default_factory=set)
    followed: dict[str, Event] = field(default_factory=dict)
    """When each replica last began to follow, or truncated its log."""
    lacking: list[str] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    """Nodes that are replicas no more: they delete their logs."""
    harmed: bool = False
    """Whether records were lost that the promise allows to lose: then logs prove nothing."""

    def read(self, events: Iterable[Event]) -> Iterator[BrokenRule]:
        """Yield the events that break a rule, in order of time."""
        known = list(events)
        for e in known:
            for broken in self.observe(e):
                kept = self._kept_other(broken, known) if self.lacking else None
                yield kept or broken
            self.lacking = []
            if e.event == trace.TRUNCATED or (e.event == trace.ROLE and e.role == "follower"):
                self.followed[e.node] = e
        yield from self._diverged(self.followed)

    def _kept_other(self, broken: BrokenRule, known: list[Event]) -> BrokenRule | None:
        """Return the event, before a commit, with which a replica began to follow although it has
        records that its leader does not have, if it never removes them: its log was not
        compared."""
        if broken.rule != "commit-without-replica":
            return None
        at = broken.event
        compared = [e for e in known if e.event == trace.DIVERGING and e.node == at.node]
        for node in self.lacking:
            other = self.replicas.logs[node].at(at.batch_end - 1)
            began = self.followed.get(node)
            same = (self.follows.get(node), self.epochs.get(node)) == (at.node, at.leader_epoch)
            if other is None or began is None or not same or other.end > began.leo:
                continue
            if any(e.follower == node and e.t_us >= began.t_us for e in compared):
                continue
            later = (e for e in known if e.node == node and e.t_us >= at.t_us)
            cut = next((e for e in later if e.event in (trace.TRUNCATED, trace.APPEND)), None)
            if cut is not None and cut.event == trace.TRUNCATED and cut.leo <= other.base:
                continue
            span = offsets(other.base, other.end)
            why = f", and keeps {span} of epoch {other.epoch}, which {at.node} does not have"
            return BrokenRule(began, "log-matching", why)
        return None

    def _diverged(self, last: dict[str, Event]) -> Iterator[BrokenRule]:
        """Yield replicas that followed a leader to the end and kept records that it lacks."""
        if not self.leaders:
            return
        leader = self.leaders[max(self.leaders)]
        log = self.replicas.logs[leader]
        for node, e in sorted(last.items()):
            if node == leader or e.leader_epoch not in (-1, max(self.leaders)):
                continue
            own = self.replicas.logs[node].batches
            other = next(
                (b for b in own if b.end <= min(log.leo, e.leo) and not log.ends_at(b.end, b.hash)),
                None,
            )
            if other is not None:
                span = offsets(other.base, other.end)
                why = f", and keeps {span} of epoch {other.epoch}, which {leader} does not have"
                yield BrokenRule(e, "log-matching", why)

    def observe(self, e: Event) -> Iterator[BrokenRule]:
        """Take one event and yield the rules that it breaks."""
        match e.event:
            case trace.STARTED:
                self.protocol = e.protocol or self.protocol
                self.voted = self.protocol in _VOTED
            case trace.BROKER:
                (self.fenced.discard if e.state == "unfenced" else self.fenced.add)(e.broker)
            case trace.APPEND:
                yield from self._append(e)
            case trace.TRUNCATED:
                yield from self._truncated(e)
            case trace.DELETED:
                yield from self._deleted(e)
            case trace.HW:
                yield from self._hw(e)
            case trace.ROLE:
                yield from self._role(e)
            case trace.PARTITION:
                yield from self._partition(e)
            case trace.ISR:
                self.isr[e.node] = e.isr
                self.knows[e.node] = e.partition_epoch
                self.pending.pop(e.node, None)
            case trace.PROPOSED:
                self.proposals.append(e)
                self.pending[e.node] = e.isr
            case trace.REPORTED:
                self.reports[e.node] = e
            case trace.DAMAGED:
                self.noticed.add(e.node)
            case trace.WITNESSED:
                self.witnessed = e
            case trace.ACK:
                if e.acks == ALL and e.leo > e.hw:
                    verb = "is" if e.leo - e.base_offset == 1 else "are"
                    why = f", before {offsets(e.base_offset, e.leo)} {verb} committed"
                    yield BrokenRule(e, "acknowledged-early", why, e.base_offset, e.leo)
            case trace.DUPLICATE:
                if e.leo > self.replicas.logs[e.node].leo:
                    why = f", although its log ends at {self.replicas.logs[e.node].leo}"
                    yield BrokenRule(e, "duplicate-not-in-log", why, e.base_offset, e.leo)
            case trace.VOTE if not e.pre:
                yield from self._vote(e, e.candidate, e.term)

    def _append(self, e: Event) -> Iterator[BrokenRule]:
        before = self.replicas.logs[e.node].leo
        matches = self.replicas.append(e)
        if e.role == "leader" or not e.hash or self.harmed:
            return
        leader = self.follows.get(e.node, "")
        if not matches and e.base_offset <= before:
            why = ", although its log below differs from its leader's"
            yield BrokenRule(e, "log-matching", why)
        elif self._leads(leader, self.epochs.get(e.node, -1)) and not self._has(
            leader, e.leo, e.hash
        ):
            why = f", although its leader {leader} does not have that"
            yield BrokenRule(e, "log-matching", why, e.base_offset, e.leo)

    def _leads(self, node: str, epoch: int) -> bool:
        """Return whether the node leads in this epoch, and in no later one."""
        return self.leaders.get(epoch) == node and self.epochs.get(node) == epoch

    def _truncated(self, e: Event) -> Iterator[BrokenRule]:
        log = self.replicas.logs[e.node]
        inside = log.at(e.leo)
        if inside is not None and inside.base < e.leo < inside.end:
            why = f", inside the batch of offsets {inside.base}-{inside.end - 1}"
            yield BrokenRule(e, "cut-inside-batch", why)
        if e.hw > e.leo:
            yield BrokenRule(e, "hw-beyond-log", f", and leaves its high watermark at {e.hw}")
        gone = [b for b in self.replicas.observe(e) if b in self._kept()]
        if gone and self._counts(e.node):
            span = offsets(gone[0].base, gone[-1].end)
            why = f", although {span} {_are(gone)} committed"
            unnoticed = 0 <= self.damaged.get(e.node, -1) <= e.t_us and e.node not in self.noticed
            rule = "damage-unnoticed" if unnoticed else "cut-committed"
            yield BrokenRule(e, rule, why, gone[0].base, gone[-1].end)

    def _deleted(self, e: Event) -> Iterator[BrokenRule]:
        self.replicas.observe(e)
        kept = self.promise.retention_records
        if not self.harmed and e.start and e.start + kept > self.hw:
            why = f", although {self.hw} is committed and the last {kept} are to be kept"
            yield BrokenRule(e, "deleted-early", why)

    def _hw(self, e: Event) -> Iterator[BrokenRule]:
        log = self.replicas.logs[e.node]
        if self.harmed or not e.hash:
            return
        before = self.hw
        if e.batch_end <= before or e.role != "leader":
            known = next((b for b in self.committed if b.base < e.batch_end <= b.end), None)
            if known is not None and (known.end, known.hash) != (e.batch_end, e.hash):
                why = ", over records that are not the committed ones"
                yield BrokenRule(e, "log-matching", why)
        if e.role != "leader" or e.batch_end <= before:
            return
        self.hw = e.batch_end
        known_ends = {b.end for b in self.committed}
        self.committed += [b for b in log.batches if b.end <= e.hw and b.end not in known_ends]
        yield from self._commit(e, before)

    def _commit(self, e: Event, before: int) -> Iterator[BrokenRule]:
        low, high = before, e.hw
        if self.voted and e.hw <= self.leads_from.get(e.node, 0):
            why = f", before any record of its own epoch {e.leader_epoch}"
            yield BrokenRule(e, "commit-of-old-term", why, low, high)
        isr, state = self.isr.get(e.node, ()), self.state
        # A leader may not know yet that the controller has changed MinISR or the ISR.
        known = state is not None and self.knows.get(e.node) == state.partition_epoch
        if known and state is not None and self.protocol == "kafka":
            least = min(state.min_isr, len(state.replicas))
            verb = "is" if len(isr) == 1 else "are"
            why = f", although only {listing(sorted(isr))} {verb} in sync"
            if 0 < len(isr) < least:
                yield BrokenRule(e, "commit-below-min-isr", why, low, high)
        lacking = [n for n in self._must_have(e) if not self._has(n, e.batch_end, e.hash)]
        if self.voted and 2 * len(lacking) < len(self._must_have(e)):
            return
        if lacking:
            self.lacking = lacking
            why = f", although {listing(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} it"
            yield BrokenRule(e, "commit-without-replica", why, low, high)

    def _must_have(self, e: Event) -> list[str]:
        state = self.state
        if self.voted:
            return sorted(self.replicas.logs)
        if state is None:
            return []
        return sorted({*state.isr, *state.elr, *self.pending.get(e.node, ())})

    def _has(self, node: str, end: int, chain: str) -> bool:
        return self.replicas.logs[node].ends_at(end, chain)

    def _kept(self) -> list[LogBatch]:
        return [] if self.harmed else self.committed

    def _counts(self, node: str) -> bool:
        """Return whether a replica may lead, and so must have all committed records."""
        if self.voted or self.state is None:
            return True
        return node in self.state.isr or node in self.state.elr

    def _role(self, e: Event) -> Iterator[BrokenRule]:
        newer = e.leader_epoch > self.epochs.get(e.node, -1)
        self.epochs[e.node] = e.leader_epoch
        self.follows[e.node] = e.leader or ""
        self.knows[e.node] = e.partition_epoch
        self.pending.pop(e.node, None)
        gone = [b for b in self.replicas.observe(e) if b in self._kept()]
        if e.node in self.moved and e.leo == 0:
            self.moved.discard(e.node)
            if gone and self._counts(e.node):
                span = offsets(gone[0].base, gone[-1].end)
                why = f": {span} {_are(gone)} not in its log, and it may lead"
                yield BrokenRule(e, "in-sync-without", why)
        elif gone and not self.promise.committed_stays:
            self.harmed = True
        elif gone and self._counts(e.node) and e.node not in self.damaged:
            yield from self._forgot(e, gone)
        if e.role == "candidate":
            yield from self._vote(e, e.node, e.leader_epoch)
        if e.role != "leader":
            return
        self.leads_from[e.node] = e.leo
        if self.state is not None and self.state.leader_epoch == e.leader_epoch:
            self.isr[e.node] = self.state.isr
        first = self.leaders.setdefault(e.leader_epoch, e.node)
        if first != e.node:
            yield BrokenRule(e, "one-leader-per-epoch", f", which {first} leads already")
        last = self.committed[-1] if self.committed else None
        if last is None or not newer or not self._kept() or e.leader_epoch < max(self.leaders):
            return
        if not self._has(e.node, last.end, last.hash):
            why = f", without all that is committed below {last.end}"
            yield BrokenRule(e, "leader-without", why)

    def _forgot(self, e: Event, gone: list[LogBatch]) -> Iterator[BrokenRule]:
        span = offsets(gone[0].base, gone[-1].end)
        low, high = gone[0].base, gone[-1].end
        if self.promise.flush == "sync":
            why = f": what it had written at {span} is gone from its disk"
            yield BrokenRule(e, "forgot-synced", why, low, high)
        elif self.protocol == "kafka":
            why = f": {span} {_are(gone)} gone from its disk, and it may still lead"
            yield BrokenRule(e, "in-sync-without", why, low, high)

    def _vote(self, e: Event, candidate: str, term: int) -> Iterator[BrokenRule]:
        voted = self.votes.setdefault((e.node, term), candidate)
        if voted != candidate:
            yield BrokenRule(e, "one-vote-per-term", f", after its vote for {voted} in this term")

    def _partition(self, e: Event) -> Iterator[BrokenRule]:
        before = self.state
        if before is not None and before.partition_epoch >= e.partition_epoch:
            return
        self.state = e
        self.harmed = self.harmed or e.unclean
        self.moved |= set(self.replicas.logs) - set(e.replicas)
        if self.voted:
            return
        if before is not None and self.protocol == "liftbridge":
            yield from self._deposed(before, e)
        if before is not None and not self.promise.unclean_election:
            yield from self._election(before, e)
            yield from self._proposal(before, e)
        isr, elr = set(e.isr), set(e.elr)
        if isr & elr or (elr and len(isr) >= min(e.min_isr, len(e.replicas))):
            yield BrokenRule(e, "isr-and-elr", ", with an ELR beside a full ISR")
        entered = isr - set(before.isr if before is not None else isr)
        fenced = sorted(entered & self.fenced)
        if fenced and self.promise.silence_deposes:
            yield BrokenRule(e, "fenced-in-isr", f", although {listing(fenced)} is fenced")
        last = self.committed[-1] if self.committed and self._kept() else None
        if last is None:
            return
        known = {*before.isr, *before.elr} if before is not None else set()
        lacking = [n for n in sorted((isr | elr) - known) if not self._has(n, last.end, last.hash)]
        if lacking:
            verb = "lacks" if len(lacking) == 1 else "lack"
            why = f", although {listing(lacking)} {verb} what is committed below {last.end}"
            yield BrokenRule(e, "in-sync-without", why)

    def _election(self, before: Event, e: Event) -> Iterator[BrokenRule]:
        if not e.leader or e.leader == before.leader or e.leader_epoch <= before.leader_epoch:
            return
        if e.leader not in may_lead(before, e):
            why = f", from outside ISR [{', '.join(before.isr)}]"
            yield BrokenRule(e, "clean-election", why)

    def _deposed(self, before: Event, e: Event) -> Iterator[BrokenRule]:
        """Yield the rule that is broken if reports about another epoch depose the leader."""
        if e.leader == before.leader or e.leader_epoch <= before.leader_epoch:
            return
        counted = self.witnessed
        if counted is None or counted.leader != before.leader:
            return
        about = {n: r.leader_epoch for n, r in self.reports.items()}
        stale = [n for n in counted.witnesses if about.get(n) != counted.leader_epoch]
        if stale:
            why = f", by a report of {listing(stale)} about an earlier epoch"
            yield BrokenRule(e, "deposed-while-alive", why)

    def _proposal(self, before: Event, e: Event) -> Iterator[BrokenRule]:
        """Yield the rule that is broken if the leader proposed a changed ISR for an older state."""
        if (
            e.leader != before.leader
            or e.leader_epoch != before.leader_epoch
            or e.isr == before.isr
        ):
            return
        if not set(e.isr) - set(before.isr):
            return  # the controller removes fenced brokers by itself
        asked = [p for p in self.proposals if set(p.isr) == set(e.isr) and p.node == e.leader]
        if asked and all(p.partition_epoch < before.partition_epoch for p in asked):
            why = f", as {e.leader} asked for an older state of the partition"
            yield BrokenRule(e, "stale-proposal", why)


def _are(batches: list[LogBatch]) -> str:
    return "is" if batches[-1].end - batches[0].base == 1 else "are"
