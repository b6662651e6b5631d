"""Rules about what a broker may not put off: an election that is won, a deadline that is
over, a follower that lags or has caught up, a high watermark that is to be stored."""

from __future__ import annotations

from collections.abc import Iterator

from harness.sim.step import Before, BrokerStep
from node.core.broker import Broker
from node.core.protocol import Commit, Detection
from node.core.quorum import Quorum
from node.core.replica import Replica
from node.formats.errors import DamagedStore
from node.formats.messages import FetchRequest, VoteResponse


class ProgressRules:
    """A memory of the votes in the last term of each candidate, and of the high watermarks that are
    not stored yet."""

    def __init__(self) -> None:
        self._votes: dict[tuple[str, str], tuple[Quorum, int, set[str]]] = {}
        self._lags: dict[tuple[str, str, int], int] = {}
        self._next_us: dict[str, int] = {}
        self._unsaved: dict[tuple[str, str], tuple[Replica, int, int]] = {}

    def delivered(self, s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
        """Yield what should have followed from a message."""
        if isinstance(s.message, VoteResponse):
            yield from self._elected(s, r, b)
        elif isinstance(s.message, FetchRequest):
            yield from _enters(s, r)

    def _elected(self, s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
        """Check that a candidate leads when a majority has voted for it, and not before."""
        m, quorum = s.message, s.quorum
        if quorum is None or m.pre or b.role != "candidate" or r.leader_epoch != b.epoch:
            return
        place = s.node, r.partition
        which, term, votes = self._votes.get(place, (quorum, b.epoch, {s.node}))
        if which is not quorum or term != b.epoch:
            votes = {s.node}
        self._votes[place] = quorum, b.epoch, votes
        if m.granted and m.request_term == b.epoch and s.source in quorum.voters:
            votes.add(s.source)
        won = 2 * len(votes) > len(quorum.voters)
        if won != (r.role == "leader"):
            yield f"has the votes of {sorted(votes)} in term {b.epoch}, and is {r.role}"

    def ticked(self, s: BrokerStep) -> Iterator[str]:
        """Yield what a tick left undone."""
        core, now_us = s.core, s.core.ctx.now_us
        saves = now_us >= self._next_us.get(s.node, 0)
        if saves:
            self._next_us[s.node] = now_us + 1000 * core.ctx.config.timings.hw_checkpoint_ms
        for r in (core.quorum.r, *core.replicas.values()):
            if r.log.damage is not None:
                continue
            if r.role == "leader":
                yield from _overdue(r, now_us)
                yield from self._shrinks(core, r)
            if saves:
                yield from self._saved(s, r, now_us)

    def _shrinks(self, core: Broker, r: Replica) -> Iterator[str]:
        """Check that a leader asks for an ISR without a laggard, again after a refusal."""
        place, now_us = (core.ctx.node, r.partition, r.leader_epoch), core.ctx.now_us
        name = _laggard(core, r)
        if not name:
            self._lags.pop(place, None)
            return
        since_us = self._lags.setdefault(place, now_us)
        if now_us - since_us > core.ctx.lag_us:
            yield f"keeps {name} in the ISR of {r.partition}, which lags"

    def _saved(self, s: BrokerStep, r: Replica, now_us: int) -> Iterator[str]:
        """Check that a changed high watermark is stored after four checkpoint intervals."""
        place = s.node, r.partition
        try:
            stored = int.from_bytes((s.core.ctx.storage.get(f"hw/{r.partition}") or b"")[:8], "big")
        except DamagedStore:
            return
        if stored == r.hw:
            self._unsaved.pop(place, None)
            return
        which, was, since_us = self._unsaved.get(place, (r, stored, now_us))
        if which is not r or was != stored:
            since_us = now_us
        self._unsaved[place] = (r, stored, since_us)
        if now_us - since_us > 4000 * s.core.ctx.config.timings.hw_checkpoint_ms:
            yield f"has high watermark {r.hw} of {r.partition}, and stored {stored} long ago"


def _overdue(r: Replica, now_us: int) -> Iterator[str]:
    """Check the requests that wait at a leader."""
    held = (*r.follower_waits.values(), *r.consumer_waits.values())
    due_us = [*(wait.deadline_us for wait in held), *(ack.deadline_us for ack in r.acks)]
    if min(due_us, default=now_us + 1) <= now_us:
        yield f"did not answer a request for {r.partition} in time"


def _laggard(core: Broker, r: Replica) -> str:
    """Return a member that should have left the ISR by now, "" if there is none ("Maximal ISR",
    shrink)."""
    if r.protocol.commit is not Commit.ISR or r.pending_alter is not None:
        return ""
    for name in r.isr:
        peer = r.peers.get(name)
        caught_up_us = r.led_since_us if peer is None else peer.last_caught_up_us
        idle = r.protocol.detection is Detection.HEARTBEATS and peer is not None
        at_end = idle and peer is not None and peer.leo >= r.leo
        late = core.ctx.now_us - caught_up_us > 2 * core.ctx.lag_us
        if name != core.ctx.node and not at_end and late:
            return name
    return ""


def _enters(s: BrokerStep, r: Replica) -> Iterator[str]:
    """Check that a follower which has caught up is proposed for the ISR ("Maximal ISR", expand)."""
    name, ctx = s.source, s.core.ctx
    peer = r.peers.get(name)
    if r.role != "leader" or r.protocol.commit is not Commit.ISR or r.pending_alter is not None:
        return
    if peer is None or name in r.isr or name not in r.replicas or peer.last_fetch_us < ctx.now_us:
        return
    complete = peer.leo >= max(r.hw, r.leso) and ctx.now_us - peer.last_caught_up_us <= ctx.lag_us
    process = peer.broker_epoch == ctx.image.broker_epoch(name) and ctx.image.is_active(name)
    if complete and process:
        yield f"does not propose {name} for the ISR, which has caught up"
