"""The known bugs: historical bugs that `--bug` brings back, each at one decision point.

A correct broker has all of them off. `Bugs` has one field for each, which the other modules read,
with the entry of the bug in the catalogue. docs/protocols.md describes them, and lists the bugs
that this design cannot express."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from node.core.protocol import Protocol, Truncation
from node.formats.errors import UsageError, unknown_name

OWNERSHIP: Final = "positions-and-ownership"


class KnownBug(NamedTuple):
    """The entry of a bug in the catalogue: code, what it changes and where it was seen.

    `protocol` is a protocol that takes the decision which the bug changes, `breaks` the property
    that the checker must find broken, `breaks_at` the rule that its first wrong step breaks (of
    `RULES` in checker/formats/story.py). A search for the bug also draws the kinds of `faults`, and
    has the `options` of the workload without which the bug cannot show. `rules` are the fields
    of `Protocol` that the bug replaces, if it is a rule of some protocol. `name` is that of its
    field in `Bugs`, with hyphens."""

    code: str
    protocol: str
    breaks: str
    breaks_at: str
    summary: str
    seen_in: str
    faults: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    rules: Mapping[str, Any] = {}
    name: str = ""


# fmt: off
@dataclass(frozen=True, slots=True)
class Bugs:
    """The bugs that are on, one field for each, with its entry in the catalogue."""

    # -- truncation: how a follower cuts its log
    truncate_to_own_hw: Annotated[bool, KnownBug("M1", "kip-279", "no-lost-acknowledged-write",
        "cut-committed", "a new follower cuts its log to its own high watermark",
        "Kafka before KIP-101 (0.11)", rules={"truncation": Truncation.OWN_HW})] = False
    truncate_to_leader_hw: Annotated[bool, KnownBug("M1b", "kip-279", "no-lost-acknowledged-write",
        "cut-committed", "a new follower cuts its log to its leader's high watermark",
        "the high-water mark pattern, literally",
        rules={"truncation": Truncation.LEADER_HW})] = False
    never_truncate: Annotated[bool, KnownBug("M1c", "kafka", "committed-prefix-agreement",
        "log-matching", "a follower cuts only what lies beyond its leader's log end",
        "nobody; the reason for all the others", rules={"truncation": Truncation.NONE})] = False
    epoch_end_without_epoch: Annotated[bool, KnownBug("M2", "kafka", "committed-prefix-agreement",
        "log-matching",
        "the leader answers where a follower's last epoch ends, but not which epoch it found",
        "KAFKA-6361 (before KIP-279, 2.0)", rules={"truncation": Truncation.EPOCH_END_V0})] = False
    undefined_to_own_hw: Annotated[bool, KnownBug("M2b", "kafka", "committed-prefix-agreement",
        "log-matching", "where the leader knows no epoch that old, a follower cuts to its own HW",
        "KIP-279 (2.0)", rules={"truncation": Truncation.EPOCH_END_V1})] = False
    one_round_only: Annotated[bool, KnownBug("M2c", "kafka", "committed-prefix-agreement",
        "log-matching", "after one cut a follower's fetches name no epoch any more",
        "KIP-279's assumption for clean elections")] = False
    no_local_lookup: Annotated[bool, KnownBug("M2d", "kafka", "committed-prefix-agreement",
        "log-matching",
        "a follower cuts to the leader's offset, whatever its own log says of that epoch",
        "KIP-595's rule, half")] = False
    compare_offsets_only: Annotated[bool, KnownBug("M2e", "kafka", "committed-prefix-agreement",
        "log-matching",
        "a leader compares where the follower's last epoch ends, and not which epoch it found",
        "KIP-595's rule, half")] = False
    lazy_epoch_cache: Annotated[bool, KnownBug("M3", "kip-279", "committed-prefix-agreement",
        "cut-committed", "a leader enters its epoch with its first record, not at its election",
        "KAFKA-7415 (before 2.0.1)")] = False
    keep_empty_epoch: Annotated[bool, KnownBug("M14", "kafka", "liveness", "not-converged",
        "a follower names an epoch in which it led and wrote nothing, and keeps it in its cache",
        "KAFKA-10706")] = False
    cut_inside_batch: Annotated[bool, KnownBug("M15", "kip-101", "log-and-metadata",
        "cut-inside-batch",
        "a cut inside a batch removes it all and leaves the log end at the cut, over a hole",
        "Kafka's LocalLog.truncateTo")] = False
    keep_fetcher_in_new_epoch: Annotated[bool, KnownBug("M28", "kip-279",
        "committed-prefix-agreement", "commit-without-replica",
        "a follower goes on as it was when its leader leads again in a later epoch",
        "a condition of the model of Kafka 3.5")] = False
    # -- retention: how the head of a log is deleted
    delete_beyond_hw: Annotated[bool, KnownBug("T1", "kafka", "log-and-metadata", "deleted-early",
        "a leader deletes the head of its log up to its log end, not its high watermark",
        "KAFKA-5634 (before 1.0)")] = False
    # -- in-sync set: which replicas count as in sync
    expand_stale_process: Annotated[bool, KnownBug("M4", "kafka", "no-lost-acknowledged-write",
        "in-sync-without", "the fetch of a process before the registered one lets it into the ISR",
        "KIP-903, KAFKA-14139")] = False
    expand_fenced: Annotated[bool, KnownBug("M4b", "kafka", "log-and-metadata", "fenced-in-isr",
        "a fenced replica may enter the ISR", "KIP-841, KAFKA-13916")] = False
    expand_at_hw: Annotated[bool, KnownBug("M5", "kafka", "no-lost-acknowledged-write",
        "in-sync-without",
        "a follower at the leader's own, perhaps stale, high watermark may enter the ISR",
        "KAFKA-7128")] = False
    expand_by_lag_only: Annotated[bool, KnownBug("M5b", "kafka", "no-lost-acknowledged-write",
        "in-sync-without", "a follower may enter the ISR because of its lag alone, complete or not",
        "Liftbridge")] = False
    hw_ignores_min_isr: Annotated[bool, KnownBug("M6", "kafka", "no-lost-acknowledged-write",
        "commit-below-min-isr", "the high watermark moves while the ISR is below MinISR",
        "KIP-966, KAFKA-15583")] = False
    no_epoch_fencing: Annotated[bool, KnownBug("M7", "kip-279", "no-lost-acknowledged-write",
        "commit-without-replica", "fetches and answers of another leader epoch count",
        "KAFKA-7395, Liftbridge #183", rules={"fences_by_epoch": False})] = False
    fetch_without_current_epoch: Annotated[bool, KnownBug("M7b", "kafka",
        "no-lost-acknowledged-write", "cut-committed",
        "a fetch carries the last epoch of the log, but not the leader epoch it is meant for",
        "KIP-320, its first draft")] = False
    no_fsync_before_ack: Annotated[bool, KnownBug("M8", "kafka", "no-lost-acknowledged-write",
        "forgot-synced", "records are acknowledged from memory although flush=sync",
        "NATS #7564, #7567")] = False
    unclean_as_clean: Annotated[bool, KnownBug("M9", "kafka", "no-lost-acknowledged-write",
        "in-sync-without", "a process that lost data keeps its place in ISR and ELR",
        "KAFKA-18635")] = False
    no_maximal_isr: Annotated[bool, KnownBug("M10", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "the high watermark does not wait for replicas that may already be in the ISR",
        "Kafka before KIP-497")] = False
    rollback_on_timeout: Annotated[bool, KnownBug("M10b", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica", "an unanswered proposal counts as refused",
        "KIP-497, rejected design")] = False
    count_diverging_fetch: Annotated[bool, KnownBug("M11", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica", "the offset of a fetch is noted before the test for divergence",
        "KAFKA-13141", rules={"last_index_matches": True})] = False
    hw_from_diverging_response: Annotated[bool, KnownBug("M12", "kafka",
        "committed-prefix-agreement", "log-matching",
        "a follower takes the high watermark of a diverging answer", "KAFKA-14704")] = False
    keep_peer_state: Annotated[bool, KnownBug("M13", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a leader keeps what it knew of its followers in an earlier leader epoch",
        "KAFKA-13790")] = False
    expand_unheard: Annotated[bool, KnownBug("M29", "kafka", "no-lost-acknowledged-write",
        "in-sync-without", "a replica that has not fetched in this leader epoch may enter the ISR",
        "a condition of the model of KIP-966")] = False
    # -- high watermark: what counts as committed, and who may read it
    stale_epoch_response: Annotated[bool, KnownBug("M16", "kafka", "committed-prefix-agreement",
        "cut-committed", "a follower takes an answer that a leader gave in an older leader epoch",
        "Kafka before KIP-320")] = False
    ack_on_demotion: Annotated[bool, KnownBug("M17", "kafka", "no-lost-acknowledged-write",
        "acknowledged-early", "a deposed leader acknowledges what still waits for the ISR",
        "KAFKA-20634")] = False
    ack_before_isr: Annotated[bool, KnownBug("M18", "kafka", "no-lost-acknowledged-write",
        "acknowledged-early",
        "acks=all is answered after the local append, before the ISR has the batch",
        "Redpanda #6018/#6019")] = False
    read_beyond_hw: Annotated[bool, KnownBug("M19", "kafka", "reads-below-hw", "read-above-hw",
        "consumers are served up to the log end instead of the high watermark",
        "Redpanda #14794")] = False
    commit_leader_only: Annotated[bool, KnownBug("M20", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica", "the high watermark is the leader's log end",
        "replication without waiting, as Redis does it")] = False
    accept_any_response: Annotated[bool, KnownBug("M23", "kafka", "no-lost-acknowledged-write",
        "cut-committed", "a follower takes a late second copy of an answer",
        "Kafka's fetcher, offset test left out")] = False
    match_by_offset_only: Annotated[bool, KnownBug("M23b", "kafka", "no-lost-acknowledged-write",
        "cut-committed", "a follower knows an answer by its offset alone, without the last epoch",
        "found with this harness")] = False
    keep_hw_at_truncation: Annotated[bool, KnownBug("M26", "kafka", "log-and-metadata",
        "hw-beyond-log", "truncation leaves the high watermark above the log end",
        "KAFKA-3978, KAFKA-16452")] = False
    # -- controller: elections, reassignment and eligible leader replicas
    no_partition_epoch_test: Annotated[bool, KnownBug("M21", "kafka", "no-lost-acknowledged-write",
        "stale-proposal",
        "the controller accepts a proposal that rests on an old state of the partition",
        "KAFKA-12686")] = False
    elect_any_replica: Annotated[bool, KnownBug("M22", "kafka", "log-and-metadata",
        "clean-election",
        "the controller lets the first active replica lead, even one outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)")] = False
    reassign_drops_first: Annotated[bool, KnownBug("M24", "kafka", "no-lost-acknowledged-write",
        "in-sync-without",
        "a move drops the old replicas at once; the new ones count as in sync, caught up or not",
        "KIP-455, rule left out")] = False
    keep_elr_at_min_isr: Annotated[bool, KnownBug("M25", "kafka", "no-lost-acknowledged-write",
        "isr-and-elr", "the ELR is kept when the ISR is at MinISR again",
        "KIP-966, rule left out")] = False
    accept_any_registration: Annotated[bool, KnownBug("M27", "kafka", "no-lost-acknowledged-write",
        "in-sync-without",
        "a process takes the broker epoch that an earlier process of its node was given",
        "a condition of the model of KIP-966")] = False
    # -- idempotent producers: what a log knows of them
    ack_duplicate_early: Annotated[bool, KnownBug("I1", "kafka", "no-lost-acknowledged-write",
        "acknowledged-early",
        "a batch that the log has already is acknowledged before the original is committed",
        "Redpanda #4366, rule left out", options=("idempotent",))] = False
    keep_truncated_producers: Annotated[bool, KnownBug("I2", "quorum", "no-lost-acknowledged-write",
        "duplicate-not-in-log", "a truncation leaves what is known of producers as it was",
        "KIP-98, rule left out", options=("idempotent",))] = False
    forget_producers: Annotated[bool, KnownBug("I3", "kip-279", "offsets-and-order",
        "appended-twice",
        "a process that starts does not read in its log what it should know of producers",
        "KAFKA-5435 (before 0.11)", options=("idempotent",))] = False
    followers_forget_producers: Annotated[bool, KnownBug("I4", "kafka", "offsets-and-order",
        "appended-twice",
        "only the leader that appends a batch learns of its producer, followers do not",
        "KIP-98, rule left out", options=("idempotent",))] = False
    # -- quorum: votes and majorities
    count_old_terms: Annotated[bool, KnownBug("R1", "quorum", "no-lost-acknowledged-write",
        "commit-of-old-term",
        "a record of an earlier term commits when a majority has it, with none of this term",
        "Raft's figure 8; LogCabin #44", rules={"counts_old_terms": True})] = False
    forget_vote: Annotated[bool, KnownBug("R2", "quorum", "log-and-metadata", "one-vote-per-term",
        "a voter does not keep its vote over a restart", "PySyncObj")] = False
    cut_on_every_answer: Annotated[bool, KnownBug("R3", "quorum", "no-lost-acknowledged-write",
        "cut-committed", "a follower cuts its log to where an answer begins, late or not",
        "PySyncObj")] = False
    last_index_matches: Annotated[bool, KnownBug("R4", "quorum", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a follower's log end counts before its log is compared with the leader's",
        "the high-water mark pattern; KAFKA-13141", rules={"last_index_matches": True})] = False
    no_previous_check: Annotated[bool, KnownBug("R4b", "quorum", "committed-prefix-agreement",
        "log-matching", "records are appended by their index; what precedes them is not compared",
        "the high-water mark pattern, literally",
        rules={"truncation": Truncation.NONE, "appends_by_index": True})] = False
    cut_to_request: Annotated[bool, KnownBug("R5", "quorum-push", "no-lost-acknowledged-write",
        "cut-committed",
        "a follower cuts its log to where an append request begins: a late one takes newer records",
        "Raft's 5.3, rule left out: entries that a follower has are not conflicts")] = False
    ack_before_commit: Annotated[bool, KnownBug("R6", "quorum", "no-lost-acknowledged-write",
        "forgot-synced", "an acknowledgement leaves before the leader's own append is on its disk",
        "etcd #14370")] = False
    count_before_commit: Annotated[bool, KnownBug("R7", "kafka", "no-lost-acknowledged-write",
        "forgot-synced",
        "a leader counts its own log end before its disk has it: what it then answers leaves early",
        "Raft's thesis, 10.2.1, rule left out")] = False
    # -- Liftbridge: defects of its code
    liftbridge_epoch_offset: Annotated[bool, KnownBug("LB1", "liftbridge",
        "committed-prefix-agreement", "log-matching",
        "a leader answers one too high where it learned the next leader epoch from records",
        "Liftbridge 26.01.1, leader epoch cache")] = False
    liftbridge_fallback: Annotated[bool, KnownBug("LB2", "liftbridge", "no-lost-acknowledged-write",
        "cut-committed",
        "a follower whose LeaderEpoch offset request failed three times cuts to its own HW",
        "Liftbridge 26.01.1, truncation of a follower", rules={"falls_back_after": 3})] = False
    liftbridge_witness: Annotated[bool, KnownBug("LB3", "liftbridge", "no-lost-acknowledged-write",
        "deposed-while-alive", "reports about a leader outlive it and count against its successor",
        "Liftbridge 26.01.1, leader reports")] = False
    liftbridge_monotone: Annotated[bool, KnownBug("LB4", "liftbridge", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a follower that came back with a shorter log is counted at its old log end",
        "Liftbridge 26.01.1, in-sync offsets")] = False
    # -- disks: what a broker makes of errors and damage
    serve_unchecked: Annotated[bool, KnownBug("D1", "kafka", "offsets-and-order",
        "damage-unnoticed", "a broker believes what its disk gives back, and serves it",
        "brokers that leave checksums to their readers", faults=("bit-flip", "torn-write"))] = False
    retry_fsync: Annotated[bool, KnownBug("D2", "quorum", "committed-prefix-agreement",
        "synced-after-error",
        "a sync that failed is tried again, and its writes count as synced then",
        "PostgreSQL before 12 (fsyncgate)", faults=("fsync-error",))] = False
    # -- groups: what a coordinator keeps, tells and refuses
    ack_commit_at_append: Annotated[bool, KnownBug("B1", "kafka", OWNERSHIP, "",
        "a commit is answered when it is appended, not when it is committed",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    answer_by_any_hw: Annotated[bool, KnownBug("B2", "kafka", OWNERSHIP, "",
        "a deposed coordinator answers what waits when a high watermark passes it, cut or not",
        "KAFKA-20634", options=("members",))] = False
    keep_state_over_leadership: Annotated[bool, KnownBug("B3", "kafka", OWNERSHIP, "",
        "a coordinator goes on with its state of an earlier leader epoch when it leads again",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    load_to_hw: Annotated[bool, KnownBug("B4", "kafka", OWNERSHIP, "",
        "a new coordinator replays its log to its high watermark, not to the log end",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    serve_while_loading: Annotated[bool, KnownBug("B5", "kafka", OWNERSHIP, "",
        "a fetch of positions during the replay is answered that there are none",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    no_commit_fence: Annotated[bool, KnownBug("B6", "kafka", OWNERSHIP, "",
        "a commit is accepted whatever the member and its epoch",
        "KIP-1251, rule left out", options=("members",))] = False
    interval_without_lower_bound: Annotated[bool, KnownBug("B7", "kafka", OWNERSHIP, "",
        "a member may commit at any epoch up to its own, whoever owns the partition",
        "KIP-1251, half", options=("members",))] = False
    forget_partition_owner: Annotated[bool, KnownBug("B8", "kafka", OWNERSHIP, "",
        "a partition that is given back before it was revoked counts as owned by nobody",
        "KAFKA-16147", options=("members",))] = False
    epoch_not_logged: Annotated[bool, KnownBug("B9", "kafka", OWNERSHIP, "",
        "a new epoch and target of a group are kept in memory, and not appended",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    expire_live_positions: Annotated[bool, KnownBug("B10", "kafka", OWNERSHIP, "",
        "with a member the positions of its partitions expire, though its group lives on",
        "Redpanda CORE-16998", options=("members",))] = False
    late_group_tombstone: Annotated[bool, KnownBug("B11", "kafka", OWNERSHIP, "",
        "what empties a group is appended only after the next member has joined",
        "nobody; a rule of the coordinator, left out", options=("members",))] = False
    apply_before_append_order: Annotated[bool, KnownBug("B12", "kafka", OWNERSHIP, "",
        "commits of one turn are applied in the order of requests, and appended in reverse",
        "Redpanda CORE-17000", options=("members",))] = False
# fmt: on


KNOWN_BUGS: Final[tuple[KnownBug, ...]] = tuple(
    hint.__metadata__[0]._replace(name=field.replace("_", "-"))
    for field, hint in get_type_hints(Bugs, include_extras=True).items()
)
"""The catalogue, in the order of the fields of `Bugs`."""
NAMES: Final = tuple(bug.name for bug in KNOWN_BUGS)
_BY_ANY_NAME: Final = {key.lower(): bug.name for bug in KNOWN_BUGS for key in (bug.name, bug.code)}


def canonical(name: str) -> str:
    """Return the name of the bug with this name or code, in any case. Raises UsageError if there is
    none."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        raise UsageError(unknown_name("bug", name, _BY_ANY_NAME, "`floodmark bugs` lists them"))
    return found


def parse(names: Iterable[str]) -> Bugs:
    """Return the bugs that are on, given their names or codes. Raises UsageError on an unknown
    one."""
    wanted = {canonical(name).replace("-", "_") for name in names}
    return Bugs(**dict.fromkeys(wanted, True))


def apply_bugs(protocol: Protocol, bugs: Bugs) -> Protocol:
    """Return the protocol with its rules replaced by those of the bugs that are on. With any bug
    on, a node does not stop when it is asked to cut its log below its high watermark: the harm must
    happen, so that the checker can find it."""
    for bug in KNOWN_BUGS:
        if bug.rules and getattr(bugs, bug.name.replace("-", "_")):
            protocol = replace(protocol, **bug.rules)
    return protocol if bugs == Bugs() else replace(protocol, hw_only_rises=False)
