"""The metadata partition: votes, terms, commitment by majority, and a cluster that loses a voter.

One voter by hand first, then whole groups under virtual time.
"""

from __future__ import annotations

import random

import pytest

from node.core import batch as batches
from node.core.api import Deliver, Mark, NodeConfig, Outgoing, Tick
from node.core.broker import Broker
from node.core.image import LeaderRecord, encode_records
from node.core.log import Log
from node.core.messages import (
    BeginQuorumEpoch,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from node.core.replica import Replica
from node.formats.errors import InvariantBroken
from node.formats.trace import METADATA_PARTITION
from node.formats.wire import fetch_body
from tests.support.broker_world import MemoryStorage, World
from tests.support.replica_bench import parse

MS = 1000
VOTERS = ("v1", "v2", "v3")


class Voter:
    """One voter with a log in our notation (a record stands for a leader's first), by hand."""

    def __init__(
        self, name: str = "v1", log: str = "", *, hw: int = 0, voters: tuple[str, ...] = VOTERS
    ) -> None:
        self.name = name
        self.voters = voters
        self.disk = MemoryStorage()
        self.now_us = 0
        self._processes = 0
        stored = Log(METADATA_PARTITION, self.disk, durable=True)
        for first, end, epoch in parse(log):
            assert end == first + 1
            stored.append_as_follower([batches.view(record_at(first, epoch))])
        self.disk.values[f"hw/{METADATA_PARTITION}"] = hw.to_bytes(8, "big")
        self.start()

    def start(self) -> None:
        """A new process on the same disk."""
        self._processes += 1
        config = NodeConfig(
            node=self.name, voters=self.voters, brokers=(), incarnation=self._processes
        )
        jitter = random.Random(self._processes)
        self.node = Broker(config, self.disk, jitter, self.now_us)
        self.tick()

    @property
    def r(self) -> Replica:
        return self.node.quorum.r

    @property
    def term(self) -> int:
        return self.r.leader_epoch

    def tick(self, ms: int = 0) -> list[Outgoing]:
        self.now_us += ms * MS
        return self.node.step(self.now_us, Tick()).messages

    def hear(self, source: str, message: object, body: bytes | None = None) -> list[Outgoing]:
        return self.node.step(self.now_us, Deliver(source, message, body)).messages  # type: ignore[arg-type]

    def asked_for_vote(
        self, source: str, term: int, log: tuple[int, int] = (99, 99), *, pre: bool = False
    ) -> VoteResponse:
        """`log` is (last epoch, log end) of the candidate."""
        request = VoteRequest(
            partition=METADATA_PARTITION, term=term, last_epoch=log[0], last_offset=log[1], pre=pre
        )
        (answer,) = (m for m in self.hear(source, request) if isinstance(m.message, VoteResponse))
        assert answer.mark is Mark.AFTER_COMMIT, "told only once it is on disk"
        assert isinstance(answer.message, VoteResponse)
        return answer.message

    def vote(self, source: str, term: int, *, granted: bool = True, pre: bool = False) -> None:
        self.hear(
            source,
            VoteResponse(
                partition=METADATA_PARTITION,
                term=term - pre,
                request_term=term,
                granted=granted,
                pre=pre,
            ),
        )

    def elect(self, vote_of: str) -> None:
        """Let it time out, and win with one other vote."""
        for _ in range(20):
            if any(isinstance(m.message, VoteRequest) for m in self.tick(100)):
                break
        self.vote(vote_of, self.term + 1, pre=True)
        assert self.r.role == "candidate"
        self.vote(vote_of, self.term)
        assert self.r.role == "leader"

    def fetched_by(self, source: str, offset: int, last_epoch: int) -> FetchResponse | None:
        request = FetchRequest(
            partition=METADATA_PARTITION,
            replica=source,
            offset=offset,
            last_epoch=last_epoch,
            leader_epoch=self.term,
        )
        found = [m.message for m in self.hear(source, request) if m.to == source]
        return found[-1] if found and isinstance(found[-1], FetchResponse) else None

    def log(self) -> str:
        stored = self.disk.logs.get(METADATA_PARTITION, {})
        views = [batches.view(data) for _, (_, data) in sorted(stored.items())]
        return " ".join(f"{one.base_offset}e{one.epoch}" for one in views)


def record_at(offset: int, epoch: int) -> bytes:
    payload = encode_records([LeaderRecord(term=epoch, leader="v9")])
    return batches.stamp(batches.build(1, payload), offset, epoch)


# -- votes ----------------------------------------------------------------------------------------


def test_one_vote_a_term_across_restarts() -> None:
    v = Voter("v1")
    assert v.asked_for_vote("v2", 5).granted
    assert not v.asked_for_vote("v3", 5).granted
    assert v.asked_for_vote("v2", 5).granted, "the same candidate may ask again"
    v.start()
    assert v.term == 5
    assert not v.asked_for_vote("v3", 5).granted, "it remembers"
    assert v.asked_for_vote("v2", 5).granted
    assert v.asked_for_vote("v3", 6).granted
    assert not v.asked_for_vote("v2", 5).granted, "a term of the past"


def test_a_candidate_that_restarts_does_not_vote_for_another_in_its_term() -> None:
    v = Voter("v1")
    v.tick(700)
    v.vote("v2", 1, pre=True)
    assert (v.r.role, v.term) == ("candidate", 1)
    v.start()
    assert not v.asked_for_vote("v3", 1).granted


@pytest.mark.parametrize(
    ("candidate", "granted"),
    [
        ((2, 3), True),  # the same log
        ((2, 4), True),
        ((3, 1), True),  # a later epoch beats length
        ((2, 2), False),
        ((1, 9), False),
        ((-1, 0), False),
    ],
)
@pytest.mark.parametrize("pre", [False, True])
def test_only_a_log_that_is_at_least_as_complete_gets_a_vote(
    candidate: tuple[int, int], granted: bool, pre: bool
) -> None:
    v = Voter("v1", "0e1 1e1 2e2")
    assert v.asked_for_vote("v2", 7, candidate, pre=pre).granted is granted


def test_a_term_is_kept_even_if_the_vote_is_not_given() -> None:
    v = Voter("v1", "0e1 1e1 2e2")
    assert not v.asked_for_vote("v2", 7, (1, 1)).granted
    v.start()
    assert v.term == 7


def test_a_pre_vote_promises_nothing() -> None:
    v = Voter("v1")
    for source in ("v2", "v3", "v2"):
        assert v.asked_for_vote(source, 5, pre=True).granted
    assert v.term == 0
    assert v.asked_for_vote("v3", 5).granted


def test_a_voter_that_hears_a_leader_grants_no_pre_vote() -> None:
    v = Voter("v1")
    v.hear("v2", BeginQuorumEpoch(partition=METADATA_PARTITION, term=1))
    assert not v.asked_for_vote("v3", 2, pre=True).granted
    v.tick(299)
    assert not v.asked_for_vote("v3", 2, pre=True).granted
    v.tick(1)
    assert v.asked_for_vote("v3", 2, pre=True).granted


def test_a_leader_grants_no_pre_vote() -> None:
    v = Voter("v1")
    v.elect("v2")
    assert not v.asked_for_vote("v3", 9, pre=True).granted


def test_outsiders_neither_get_nor_give_votes() -> None:
    v = Voter("v1")
    request = VoteRequest(partition=METADATA_PARTITION, term=9, last_epoch=9, last_offset=9)
    assert v.hear("n1", request) == []
    assert v.term == 0
    v.tick(700)
    v.vote("n1", 1, pre=True)
    assert v.term == 0


def test_a_vote_counts_once_and_only_in_its_term() -> None:
    v = Voter("v1")
    v.tick(700)
    v.vote("v2", 1, granted=False, pre=True)
    assert v.term == 0, "a refusal is no vote"
    v.vote("v2", 1, pre=True)
    assert (v.r.role, v.term) == ("candidate", 1)
    v.vote("v3", 1, pre=True)
    assert v.r.role == "candidate", "a pre-vote that comes late is no vote"
    v.vote("v3", 1)
    assert v.r.role == "leader"


def test_a_vote_that_comes_twice_counts_once() -> None:
    """Links may double a message. Of five voters three elect."""
    v = Voter("v1", voters=("v1", "v2", "v3", "v4", "v5"))
    v.tick(700)
    v.vote("v2", 1, pre=True)
    v.vote("v2", 1, pre=True)
    assert v.r.role == "follower"
    v.vote("v3", 1, pre=True)
    assert v.r.role == "candidate"
    v.vote("v2", 1)
    v.vote("v2", 1)
    assert v.r.role == "candidate", "v1 and v2 are two of five"
    v.vote("v3", 1)
    assert v.r.role == "leader"


def test_a_vote_of_an_older_term_does_not_count() -> None:
    """v2 voted for v1 in term 1. In term 2 it may have voted for v3."""
    v = Voter("v1")
    v.tick(700)
    v.vote("v2", 1, pre=True)
    assert (v.r.role, v.term) == ("candidate", 1)
    v.tick(700)
    v.vote("v3", 2, pre=True)
    assert (v.r.role, v.term) == ("candidate", 2)
    v.vote("v2", 1)
    assert v.r.role == "candidate"
    v.vote("v2", 2)
    assert v.r.role == "leader"


def test_a_candidate_that_hears_of_a_newer_term_gives_up() -> None:
    v = Voter("v1")
    v.tick(700)
    v.vote("v2", 1, pre=True)
    v.hear("v3", VoteResponse(partition=METADATA_PARTITION, term=8, request_term=1, granted=False))
    assert (v.r.role, v.term) == ("follower", 8)


# -- commitment -----------------------------------------------------------------------------------


def test_figure_8_an_old_term_is_not_committed_by_counting() -> None:
    """v1 leads term 3 with a record of term 1 that a majority has; v2 has another, of term 2."""
    v1 = Voter("v1", "0e1")
    v1.asked_for_vote("v2", 2, (-1, 0))
    v1.elect("v3")
    assert (v1.term, v1.log()) == (3, "0e1 1e3")
    v1.fetched_by("v3", 1, 1)
    assert v1.r.hw == 0, "v1 and v3 both have 0e1, yet v2 may still win and replace it"
    assert Voter("v3", "0e1").asked_for_vote("v2", 4, (2, 1)).granted, "it would have"
    v1.fetched_by("v3", 2, 3)
    assert v1.r.hw == 2, "with a record of term 3 the old one commits"
    assert not Voter("v3", "0e1 1e3").asked_for_vote("v2", 4, (2, 1)).granted


def test_a_longer_divergent_voter_is_not_counted() -> None:
    v1 = Voter("v1", "0e1")
    v1.elect("v3")
    v1.hear(
        "v3", VoteRequest(partition=METADATA_PARTITION, term=v1.term, last_epoch=1, last_offset=0)
    )
    answer = v1.fetched_by("v2", 5, 0)
    assert answer is not None
    assert answer.diverging == (0, 0)
    assert v1.r.hw == 0
    assert "v2" not in v1.r.peers


def test_observers_are_not_counted() -> None:
    v1 = Voter("v1")
    v1.elect("v2")
    for observer in ("n1", "n2", "n3"):
        v1.fetched_by(observer, 1, v1.term)
    assert v1.r.hw == 0
    v1.fetched_by("v3", 1, v1.term)
    assert v1.r.hw == 1


def test_a_cut_of_committed_records_is_fatal() -> None:
    v = Voter("v2", "0e1 1e1 2e1", hw=2)
    v.hear("v1", BeginQuorumEpoch(partition=METADATA_PARTITION, term=4))
    answer = FetchResponse(
        partition=METADATA_PARTITION,
        offset=3,
        last_epoch=1,
        request_epoch=4,
        diverging=(1, 1),
        leader="v1",
    )
    with pytest.raises(InvariantBroken, match="committed records"):
        v.hear("v1", answer, fetch_body(4, 0, []))


def test_a_leader_with_a_lower_high_watermark_does_not_lower_that_of_others() -> None:
    """KRaft: the high watermark of a voter never falls."""
    v = Voter("v2", "0e1 1e1 2e1", hw=3)
    v.hear("v1", BeginQuorumEpoch(partition=METADATA_PARTITION, term=4))
    answer = FetchResponse(
        partition=METADATA_PARTITION, offset=3, last_epoch=1, request_epoch=4, leader="v1"
    )
    v.hear("v1", answer, fetch_body(4, 1, []))
    assert v.r.hw == 3


# -- check quorum ---------------------------------------------------------------------------------


def test_a_leader_without_a_majority_resigns() -> None:
    v = Voter("v1")
    v.elect("v2")
    for _ in range(20):
        v.tick(100)
        v.fetched_by("v3", 1, v.term)
    assert v.r.role == "leader", "v3 and itself are a majority"
    for _ in range(8):
        v.tick(100)
    assert v.r.role == "leader"
    for _ in range(4):
        v.tick(100)
    assert v.r.role == "follower"


def test_observers_do_not_keep_a_leader_in_office() -> None:
    v = Voter("v1")
    v.elect("v2")
    for _ in range(15):
        v.tick(100)
        v.fetched_by("n1", 1, v.term)
    assert v.r.role != "leader"


def test_a_sole_voter_never_resigns() -> None:
    """KAFKA-16144."""
    world = World(0, brokers=0)
    world.run_for(60_000)
    q = world.nodes["v1"].quorum.r
    assert (q.role, q.leader_epoch) == ("leader", 1)
