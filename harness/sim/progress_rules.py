"""Rules about what a broker may not put off: an election that is won, a deadline that is
over, a follower that lags or has caught up, a high watermark that is to be stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.sim.step import Before, BrokerStep
from node.core.broker import Broker
from node.core.protocol import Commit, Detection
from node.core.quorum import Quorum
from node.core.replica import Replica
from node.formats.errors import DamagedStore
from node.formats.messages import VoteResponse

_ISR: Final = Commit.ISR
"""Read at each fetch and tick: members of an enum are found slowly."""


class ProgressRules:
    """A memory of the votes in the last term of each candidate, of the high watermarks that are not
    stored yet, of the proposals that were sent, and of the voters that a leader heard."""

    def __init__(self) -> None:
        self._votes: dict[tuple[str, str], tuple[Quorum, int, set[str]]] = {}
        self._lags: dict[tuple[str, str, int], int] = {}
        self._next_us: dict[str, int] = {}
        self._unsaved: dict[tuple[str, str], tuple[Replica, int, int]] = {}
        self.proposed_us: dict[tuple[str, str], int] = {}
        self._heard: dict[tuple[str, str, str], int] = {}

    def delivered(self, s: BrokerStep, r: Replica, b: Before) -> str:
        """Return what should have followed from a vote or a fetch, "" if nothing."""
        if type(s.message) is VoteResponse:
            return self._elected(s, r, b)
        if s.quorum is not None:
            self._heard[s.node, r.partition, s.source] = s.core.ctx.now_us
        return _enters(s, r)

    def _elected(self, s: BrokerStep, r: Replica, b: Before) -> str:
        """Check that a candidate leads when a majority has voted for it, and not before."""
        m, quorum = s.message, s.quorum
        if quorum is None or m.pre or b.role != "candidate" or r.leader_epoch != b.epoch:
            return ""
        place = s.node, r.partition
        which, term, votes = self._votes.get(place, (quorum, b.epoch, {s.node}))
        if which is not quorum or term != b.epoch:
            votes = {s.node}
        self._votes[place] = quorum, b.epoch, votes
        if m.granted and m.request_term == b.epoch and s.source in quorum.voters:
            votes.add(s.source)
        won = 2 * len(votes) > len(quorum.voters)
        if won == (r.role == "leader"):
            return ""
        return f"has the votes of {sorted(votes)} in term {b.epoch}, and is {r.role}"

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
                if _overdue(r, now_us):
                    yield f"did not answer a request for {r.partition} in time"
                if name := self._unshrunk(core, r):
                    yield f"keeps {name} in the ISR of {r.partition}, which lags"
                if what := self._unanswered(core, r) or self._alone(core, r):
                    yield what
            if saves:
                yield from self._saved(s, r, now_us)

    def _unanswered(self, core: Broker, r: Replica) -> str:
        """Return that a leader did not send a proposal again, "" if it did ("Maximal ISR")."""
        ago_us = core.ctx.now_us - self.proposed_us.get((core.ctx.node, r.partition), 0)
        what = f"did not repeat its proposal of {ago_us // 1000} ms ago"
        return what if r.pending_alter and ago_us > 2 * core.ctx.retry_us else ""

    def _alone(self, core: Broker, r: Replica) -> str:
        """Return that a leader did not resign which no majority hears, "" if one does ("Check
        quorum"). It looks every two retry times."""
        ctx, quorum = core.ctx, core.quorums.get(r.partition)
        since_us = ctx.now_us - ctx.config.timings.election_max_ms * 1500 - 2 * ctx.retry_us
        if quorum is None or since_us <= r.led_since_us:
            return ""
        place = ctx.node, r.partition
        heard = [v for v in quorum.voters if self._heard.get((*place, v), 0) >= since_us]
        if len(quorum.voters) == 1 or 2 * len({*heard, ctx.node}) > len(quorum.voters):
            return ""
        return f"leads {r.partition}, and of {quorum.voters} only {heard} asked lately"

    def _unshrunk(self, core: Broker, r: Replica) -> str:
        """Return a laggard without which a leader should have asked for an ISR, again after a
        refusal; "" if there is none."""
        name = _laggard(core, r)
        if not (name or self._lags):
            return ""
        place, now_us = (core.ctx.node, r.partition, r.leader_epoch), core.ctx.now_us
        if not name:
            self._lags.pop(place, None)
            return ""
        since_us = self._lags.setdefault(place, now_us)
        return name if now_us - since_us > core.ctx.lag_us else ""

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


def _overdue(r: Replica, now_us: int) -> bool:
    """Return whether a request that waits at a leader should have been answered."""
    for held in (r.follower_waits.values(), r.consumer_waits.values(), r.acks):
        for waits in held:
            if waits.deadline_us <= now_us:
                return True
    return False


def _laggard(core: Broker, r: Replica) -> str:
    """Return a member that should have left the ISR by now, "" if there is none ("Maximal ISR",
    shrink)."""
    if r.protocol.commit is not _ISR or r.pending_alter is not None:
        return ""
    ctx = core.ctx
    late_us = ctx.now_us - 2 * ctx.lag_us
    for name in r.isr:
        peer = r.peers.get(name)
        caught_up_us = r.led_since_us if peer is None else peer.last_caught_up_us
        if caught_up_us >= late_us or name == ctx.node:
            continue
        idle = r.protocol.detection is Detection.HEARTBEATS
        if not (idle and peer is not None and peer.leo >= r.leo):
            return name
    return ""


def _enters(s: BrokerStep, r: Replica) -> str:
    """Check that a follower which has caught up is proposed for the ISR ("Maximal ISR", expand)."""
    if r.role != "leader" or s.source in r.isr:
        return ""
    name, ctx = s.source, s.core.ctx
    peer = r.peers.get(name)
    if r.protocol.commit is not _ISR or r.pending_alter is not None:
        return ""
    if peer is None or name not in r.replicas or peer.last_fetch_us < ctx.now_us:
        return ""
    complete = peer.leo >= max(r.hw, r.leso) and ctx.now_us - peer.last_caught_up_us <= ctx.lag_us
    process = peer.broker_epoch == ctx.image.broker_epoch(name) and ctx.image.is_active(name)
    if complete and process:
        return f"does not propose {name} for the ISR, which has caught up"
    return ""
