"""Elections of a partition whose replicas vote: terms, votes, pre-vote and check quorum.

This is Raft by pull, as in KRaft: voters elect, and followers fetch. The log, the fetch handler and
the truncation are those of every other partition. A voter's term and vote are on disk before any
message carries them. Pre-vote keeps a returning voter from raising the term. Check quorum makes a
leader resign if no majority fetches from it. Nodes that are not voters only fetch (observers). See
docs/protocols.md; KIP-595, KIP-996."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from node.core import batch as batches
from node.core import follower, leader, push
from node.core.context import Context
from node.core.epochs import EpochEnd
from node.core.high_watermark import advance_hw
from node.core.image import NO_LEADER, LeaderRecord, encode_records
from node.core.leader import append
from node.core.log import Damage
from node.core.replica import NEVER, Replica, trace_damage
from node.core.serve import refuse_fetch
from node.formats.errors import DamagedStore
from node.formats.messages import (
    AppendEntries,
    AppendResponse,
    BeginQuorumEpoch,
    Error,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from node.formats.trace import METADATA_PARTITION, REFUSED, VOTE
from node.formats.wire import split_fetch_body

MAX_TERM: Final = (1 << 31) - 1
"""A leader stamps its term on batches as a signed number of 32 bits."""
_Term = Annotated[int, msgspec.Meta(ge=0, le=MAX_TERM)]
_VOTE: Final = msgspec.msgpack.Decoder(tuple[_Term, str])
_OUT: Final = msgspec.msgpack.Decoder(_Term)
_FOR_EVER: Final = MAX_TERM
_T = TypeVar("_T")


class Quorum:
    """The election state of one replica `r` whose partition is led by votes.

    `r.leader_epoch` is the term, `r.replicas` the voters. Invariant: a voter grants at most one
    vote in a term, and its term never falls, across restarts.

    A voter whose log is damaged lacks records that it has acknowledged. It neither votes nor
    campaigns until it has a record of a later term than its term at the damage: the leader of that
    term was elected without it, and has everything. A voter with an emptied disk knows neither its
    votes nor what it acknowledged, so it only fetches, and its fetches do not count; of a partition
    that was made since, it has lost nothing."""

    def __init__(self, ctx: Context, r: Replica, voters: tuple[str, ...]) -> None:
        self.r = r
        self.voters = voters
        self.voted_for = ""
        self._phase: Literal["idle", "pre-vote", "vote"] = "idle"
        self._granted: list[str] = []
        self._leader_heard_us = -NEVER
        self._election_us = NEVER
        self._announce_us = NEVER
        self._watch_us = NEVER
        self._asked = 0
        self._vote_key, self._out_key = f"vote/{r.partition}", f"out/{r.partition}"
        r.replicas = self.voters
        r.leader_epoch, self.voted_for = _kept(ctx, self._vote_key, _VOTE, (0, ""))
        r.leader_epoch = max(r.leader_epoch, r.log.last_epoch)
        r.role = "follower"
        # A voter that is out is back with a record of a term above this one; 0: it is not out.
        kept = _kept(ctx, self._out_key, _OUT, -1)
        self._out_until = max(0, kept)
        self.is_voter = ctx.node in self.voters and not self._out_until
        if ctx.node in self.voters:
            self._find_losses(ctx, nothing_kept=kept < 0)

    # -- a voter that lost something

    def _find_losses(self, ctx: Context, *, nothing_kept: bool) -> None:
        r = self.r
        if ctx.disk_emptied and nothing_kept and ctx.serving:
            self._write_out(ctx, 0)  # so that later processes know that it was made since
        elif ctx.disk_emptied and nothing_kept:
            what = "the disk was emptied, so that the votes of this voter are not known"
            self._stay_out(ctx, _FOR_EVER, -1, what)
        elif r.log.damage is not None:
            self._lost(ctx, r.log.damage)
        r.observer = self._out_until == _FOR_EVER

    def _lost(self, ctx: Context, damage: Damage) -> None:
        self._stay_out(ctx, max(self.r.leader_epoch, self._out_until), *damage)

    def _stay_out(self, ctx: Context, term: int, offset: int, what: str) -> None:
        """Do not vote until there is a record of a term above `term`. Raises DamagedStore if no
        other node has the metadata."""
        if len(self.voters) == 1 and self.r.partition == METADATA_PARTITION:
            what = f"{what}; {ctx.node} is the only voter, so nobody else has it"
            raise DamagedStore(what, partition=self.r.partition, offset=offset)
        self._write_out(ctx, term)
        self.is_voter = False

    def _come_back(self, ctx: Context) -> None:
        """Vote again if the log has all that this voter ever acknowledged."""
        if self.r.log.damage is None and self.r.log.last_epoch > self._out_until:
            self._write_out(ctx, 0)
            self.is_voter = True
            self._reset_election(ctx)

    def _write_out(self, ctx: Context, term: int) -> None:
        self._out_until = term
        ctx.storage.put(self._out_key, msgspec.msgpack.encode(term), durable=True)

    def set_aside(self, ctx: Context, damage: Damage) -> None:
        """Stop leading and voting with a log that was found damaged while in use."""
        r = self.r
        if r.role == "leader":
            leader.resign(ctx, r)
        r.role = "follower"
        trace_damage(ctx, r.partition, damage)
        r.set_hw(ctx, min(r.hw, r.leo))
        self._lost(ctx, damage)
        self._election_us = NEVER
        self._follow(ctx, r.leader_epoch, NO_LEADER)

    def start(self, ctx: Context) -> None:
        """Begin as a follower that knows no leader; a sole voter elects itself at once."""
        if self.is_voter and len(self.voters) == 1:
            self._campaign(ctx, "pre-vote")
            return
        self._reset_election(ctx)
        self._fetch(ctx)

    # -- roles ----------------------------------------------------------------------------------

    def _follow(self, ctx: Context, term: int, new_leader: str) -> None:
        """Follow `new_leader` ("" if unknown) in `term`."""
        r = self.r
        assert term >= r.leader_epoch, (term, r.leader_epoch)
        if r.role == "leader":
            leader.resign(ctx, r)
        if term > r.leader_epoch:
            r.leader_epoch = term
            self._save_vote(ctx, "")
        r.leader = new_leader
        r.role = "follower"
        self._phase = "idle"
        r.fetching.failures = 0
        self._announce_us = NEVER
        if new_leader:
            self._leader_heard_us = ctx.now_us
        r.trace_role(ctx)
        self._reset_election(ctx)
        if new_leader:
            follower.prepare(ctx, r)
        self._fetch(ctx)

    def _fetch(self, ctx: Context) -> None:
        """Fetch from the leader; while none is known, from each voter in turn. If the leader
        pushes, wait for it."""
        if self.r.protocol.pushes:
            self.r.fetching.deadline_us = NEVER
            return
        to = self.r.leader
        if to in (NO_LEADER, ctx.node):
            self.r.fetching.asking = None
            others = [v for v in self.voters if v != ctx.node]
            if not others:  # a sole voter has no other to ask: its next election comes soon
                self.r.fetching.deadline_us = NEVER
                return
            to = others[self._asked]
            self._asked = (self._asked + 1) % len(others)
            follower.fetch(ctx, self.r, to)
        else:
            follower.proceed(ctx, self.r)

    def _campaign(self, ctx: Context, phase: Literal["pre-vote", "vote"]) -> None:
        """Ask for votes. A pre-vote asks whether an election could be won, without raising the
        term: its voter stays a follower and goes on looking for a leader meanwhile."""
        r = self.r
        r.leader = NO_LEADER
        self._phase = phase
        if phase == "vote":
            r.leader_epoch += 1
            self._save_vote(ctx, ctx.node)
        r.role = "candidate" if phase == "vote" else "follower"
        r.trace_role(ctx)
        self._granted = [ctx.node]
        self._reset_election(ctx)
        if self._won():
            self._advance_campaign(ctx)
            return
        request = VoteRequest(
            partition=r.partition,
            term=r.leader_epoch + (phase == "pre-vote"),
            last_epoch=r.log.last_epoch,
            last_offset=r.leo,
            pre=phase == "pre-vote",
        )
        for voter in self.voters:
            if voter != ctx.node:
                ctx.send(voter, request)

    def _won(self) -> bool:
        return len(self._granted) > len(self.voters) // 2

    def _advance_campaign(self, ctx: Context) -> None:
        if self._phase == "pre-vote":
            self._campaign(ctx, "vote")
        else:
            self._lead(ctx)

    def _lead(self, ctx: Context) -> None:
        """Lead this term; its first record lets older ones commit, unless counting is enough."""
        r = self.r
        r.leader = ctx.node
        self._phase = "idle"
        leader.begin(ctx, r)
        # A sole voter is its own majority and never resigns (KAFKA-16144).
        self._watch_us = NEVER if len(self.voters) == 1 else ctx.now_us
        if not r.protocol.counts_old_terms:
            record = LeaderRecord(term=r.leader_epoch, leader=ctx.node)
            append(ctx, r, batches.view(batches.build(1, encode_records([record]), control=True)))
            advance_hw(ctx, r)
        self._announce(ctx)

    def _announce(self, ctx: Context) -> None:
        """Announce the term to the voters that have not fetched in it; repeated until they have. A
        leader that pushes sends all of them a heartbeat, as long as it leads."""
        r = self.r
        if r.protocol.pushes:
            push.serve(ctx, r, beat=True)
            self._announce_us = ctx.now_us + 2 * ctx.retry_us
            return
        waiting = [v for v in self.voters if v != ctx.node and v not in r.peers]
        for voter in waiting:
            ctx.send(voter, BeginQuorumEpoch(partition=r.partition, term=r.leader_epoch))
        self._announce_us = ctx.now_us + 2 * ctx.retry_us if waiting else NEVER

    def _reset_election(self, ctx: Context) -> None:
        """Draw a new election timeout; observers have none."""
        if not self.is_voter:
            return
        timings = ctx.config.timings
        wait_ms = ctx.jitter.randint(timings.election_min_ms, timings.election_max_ms)
        self._election_us = ctx.now_us + wait_ms * 1000

    def _save_vote(self, ctx: Context, candidate: str) -> None:
        """Write term and vote durably, before any message that follows from them."""
        self.voted_for = candidate
        if ctx.node in self.voters:
            kept = "" if self.r.bugs.forget_vote else candidate
            value = msgspec.msgpack.encode((self.r.leader_epoch, kept))
            ctx.storage.put(self._vote_key, value, durable=True)

    # -- messages -------------------------------------------------------------------------------

    def on_message(
        self, ctx: Context, source: str, message: VoteRequest | VoteResponse | BeginQuorumEpoch
    ) -> None:
        """Handle a message of an election."""
        match message:
            case VoteRequest():
                self.on_vote_request(ctx, source, message)
            case VoteResponse():
                self.on_vote_response(ctx, source, message)
            case BeginQuorumEpoch():
                self._accept_leader(ctx, source, message.term, "begin-epoch")

    def on_vote_request(self, ctx: Context, source: str, request: VoteRequest) -> None:
        """Grant a vote if the candidate's log is at least as complete as this one and no other
        candidate of its term has this voter's vote; refuse it otherwise."""
        r = self.r
        if not self.is_voter or source not in self.voters:
            return
        if not request.pre and request.term > r.leader_epoch:
            self._follow(ctx, request.term, NO_LEADER)
        ours = (r.log.last_epoch, r.leo)
        complete = (request.last_epoch, request.last_offset) >= ours
        if request.pre:
            granted = complete and request.term > r.leader_epoch and not self._hears_leader(ctx)
        else:
            free = self.voted_for in ("", source)
            granted = complete and request.term == r.leader_epoch and free and r.role == "follower"
            if granted:
                self._save_vote(ctx, source)
                self._reset_election(ctx)
        if granted:
            ctx.trace(VOTE, r.partition, candidate=source, term=request.term, pre=request.pre)
        ctx.send(
            source,
            VoteResponse(
                partition=r.partition,
                term=r.leader_epoch,
                request_term=request.term,
                granted=granted,
                pre=request.pre,
            ),
        )

    def _hears_leader(self, ctx: Context) -> bool:
        """Return whether a leader was heard within the shortest election timeout."""
        if self.r.role == "leader":
            return True
        return ctx.now_us - self._leader_heard_us < ctx.config.timings.election_min_ms * 1000

    def on_vote_response(self, ctx: Context, source: str, response: VoteResponse) -> None:
        """Count a vote for this node's campaign; follow a newer term."""
        r = self.r
        if response.term > r.leader_epoch:
            self._follow(ctx, response.term, NO_LEADER)
            return
        asked = "pre-vote" if response.pre else "vote"
        if self._phase != asked or response.request_term != r.leader_epoch + response.pre:
            return
        if response.granted and source in self.voters and source not in self._granted:
            self._granted.append(source)
            if self._won():
                self._advance_campaign(ctx)

    def _accept_leader(self, ctx: Context, source: str, term: int, kind: str) -> bool:
        """Follow a voter that says that it leads `term`; return whether it may."""
        r = self.r
        if term < r.leader_epoch or source not in self.voters:
            return False
        if r.role == "leader" and term == r.leader_epoch:
            # Impossible, unless a bug forgets votes; then the trace has both leaders.
            ctx.trace(REFUSED, r.partition, kind=kind, source=source, reason="I lead it")
            return False
        if term > r.leader_epoch or r.leader != source:
            self._follow(ctx, term, source)
        return True

    def on_append(
        self, ctx: Context, source: str, request: AppendEntries, body: bytes | None
    ) -> None:
        """Take the records that a leader pushes; a leader of an older term learns this one."""
        r = self.r
        if not r.protocol.pushes:
            return
        if self._accept_leader(ctx, source, request.leader_epoch, "append-entries"):
            push.on_append(ctx, r, source, request, body)
            self._hear_leader(ctx)
        elif source in self.voters and r.role != "leader":
            push.answer(ctx, r, source, request, matched=False, found=EpochEnd(-1, 0))

    def on_append_response(self, ctx: Context, source: str, response: AppendResponse) -> None:
        """Count a follower's log, and send it more; a newer term ends this leadership."""
        r = self.r
        if source not in self.voters:
            return
        if response.leader_epoch > r.leader_epoch:
            self._follow(ctx, response.leader_epoch, NO_LEADER)
        elif r.role == "leader" and r.protocol.pushes:
            push.on_response(ctx, r, source, response)
            advance_hw(ctx, r)
            push.serve(ctx, r)

    def _hear_leader(self, ctx: Context) -> None:
        self._leader_heard_us = ctx.now_us
        self._reset_election(ctx)
        if self._out_until:
            self._come_back(ctx)

    def on_fetch(self, ctx: Context, source: str, request: FetchRequest) -> None:
        """Answer the fetch of a voter or an observer; a newer term in it ends this leadership."""
        r = self.r
        if request.leader_epoch > r.leader_epoch and self.is_voter and source in self.voters:
            self._follow(ctx, request.leader_epoch, NO_LEADER)
        if r.role != "leader":
            refuse_fetch(ctx, source, request, Error.NOT_LEADER, r)
            return
        leader.on_fetch(ctx, r, source, request)

    def on_fetch_response(
        self, ctx: Context, source: str, response: FetchResponse, body: bytes | None
    ) -> None:
        """Learn the term and the leader from any voter's response; append the records in the
        leader's."""
        r = self.r
        if source not in self.voters:
            return
        term, _, _ = split_fetch_body(body)
        if r.role == "leader" and term <= r.leader_epoch:
            return
        hint = response.leader if response.leader != ctx.node else NO_LEADER
        if term > r.leader_epoch or (term == r.leader_epoch and hint and r.leader != hint):
            self._follow(ctx, term, hint)
            return
        if r.role != "follower":
            return
        if source == r.leader and response.error is Error.NOT_LEADER:
            r.leader = NO_LEADER
        if r.leader == NO_LEADER:
            r.fetching.outstanding = False
            r.fetching.deadline_us = ctx.now_us + ctx.retry_us
            r.wake_us = min(r.wake_us, r.fetching.deadline_us)
            return
        heard = follower.on_response(ctx, r, source, response, body)
        if heard and not response.error:
            self._hear_leader(ctx)

    # -- time -----------------------------------------------------------------------------------

    def tick(self, ctx: Context) -> None:
        """Campaign, resign, announce the term or fetch, if it is time."""
        r, now = self.r, ctx.now_us
        if r.role == "leader":
            if self._watch_us <= now:
                self._watch_us = now + 2 * ctx.retry_us
                if self._lost_majority(ctx):
                    self._follow(ctx, r.leader_epoch, NO_LEADER)
                    return
            if self._announce_us <= now:
                self._announce(ctx)
            if r.wake_us <= now:
                r.wake_us = leader.tick(ctx, r)
            return
        if self._election_us <= now:
            self._campaign(ctx, "pre-vote")
        if r.role == "follower" and r.fetching.deadline_us <= now:
            if r.fetching.outstanding and not self.is_voter:
                r.leader = NO_LEADER  # an observer holds no elections: it asks around
            self._fetch(ctx)

    def next_us(self) -> int:
        """Return the time of the next action of `tick` in microseconds, NEVER if there is none."""
        # Compared one by one: this runs after every step, and `min` takes three times as long.
        r = self.r
        if r.role == "leader":
            next_us = r.wake_us
            if self._announce_us < next_us:
                next_us = self._announce_us
            if self._watch_us < next_us:
                next_us = self._watch_us
            return next_us
        next_us = self._election_us
        if r.role == "follower" and r.fetching.deadline_us < next_us:
            next_us = r.fetching.deadline_us
        return next_us

    def _lost_majority(self, ctx: Context) -> bool:
        """Return whether no majority, this node included, fetched lately (check quorum)."""
        r = self.r
        limit_us = ctx.config.timings.election_max_ms * 1500
        if ctx.now_us - r.led_since_us <= limit_us:
            return False
        heard = 1 + sum(
            1
            for voter in self.voters
            if voter in r.peers and ctx.now_us - r.peers[voter].last_fetch_us <= limit_us
        )
        return heard <= len(self.voters) // 2


def _kept(ctx: Context, key: str, decoder: msgspec.msgpack.Decoder[_T], never: _T) -> _T:
    """Return a value that this voter wrote durably, `never` if it never wrote one. Raises
    DamagedStore: without it the node may not vote, and no other node has it."""
    saved = ctx.storage.get(key)
    if saved is None:
        return never
    try:
        return decoder.decode(saved)
    except msgspec.MsgspecError as error:
        raise DamagedStore(str(error), key=key) from None
