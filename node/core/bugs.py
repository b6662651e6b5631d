"""The known bugs: historical bugs that `--bug` brings back, each at one decision point.

A correct broker has all of them off. `KNOWN_BUGS` is the catalogue, with one entry for each bug.
`Bugs` has one field for each, which the other modules read. docs/protocols.md describes them, and
lists the bugs that this design cannot express."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from node.core.protocol import Protocol, Truncation
from node.formats.errors import UsageError, unknown_name


class KnownBug(NamedTuple):
    """One entry of the catalogue of bugs: name, code, what it changes and where it was seen.

    `protocol` is a protocol that takes the decision which the bug changes, `breaks` the property
    that the checker must find broken, `breaks_at` the rule that its first wrong step breaks (of
    `RULES` in checker/formats/story.py). A search for the bug also draws the kinds of `faults`, and
    turns on the `dimensions` of schedules without which the bug cannot show."""

    name: str
    code: str
    protocol: str
    breaks: str
    breaks_at: str
    summary: str
    seen_in: str
    faults: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()


KNOWN_BUGS: Final = (
    # -- truncation: how a follower cuts its log
    KnownBug("truncate-to-own-hw", "M1", "kip-279", "no-lost-acknowledged-write", "cut-committed",
        "a new follower cuts its log to its own high watermark", "Kafka before KIP-101 (0.11)"),
    KnownBug("truncate-to-leader-hw", "M1b", "kip-279", "no-lost-acknowledged-write",
        "cut-committed", "a new follower cuts its log to its leader's high watermark",
        "the high-water mark pattern, literally"),
    KnownBug("never-truncate", "M1c", "kafka", "committed-prefix-agreement", "log-matching",
        "a follower cuts only what lies beyond its leader's log end",
        "nobody; the reason for all the others"),
    KnownBug("epoch-end-without-epoch", "M2", "kafka", "committed-prefix-agreement", "log-matching",
        "the leader answers where a follower's last epoch ends, but not which epoch it found",
        "KAFKA-6361 (before KIP-279, 2.0)"),
    KnownBug("undefined-to-own-hw", "M2b", "kafka", "committed-prefix-agreement", "log-matching",
        "where the leader knows no epoch that old, a follower cuts to its own HW", "KIP-279 (2.0)"),
    KnownBug("one-round-only", "M2c", "kafka", "committed-prefix-agreement", "log-matching",
        "after one cut a follower's fetches name no epoch any more",
        "KIP-279's assumption for clean elections"),
    KnownBug("no-local-lookup", "M2d", "kafka", "committed-prefix-agreement", "log-matching",
        "a follower cuts to the leader's offset, whatever its own log says of that epoch",
        "KIP-595's rule, half"),
    KnownBug("compare-offsets-only", "M2e", "kafka", "committed-prefix-agreement", "log-matching",
        "a leader compares where the follower's last epoch ends, and not which epoch it found",
        "KIP-595's rule, half"),
    KnownBug("lazy-epoch-cache", "M3", "kip-279", "committed-prefix-agreement", "cut-committed",
        "a leader enters its epoch with its first record, not at its election",
        "KAFKA-7415 (before 2.0.1)"),
    KnownBug("keep-empty-epoch", "M14", "kafka", "liveness", "not-converged",
        "a follower names an epoch in which it led and wrote nothing, and keeps it in its cache",
        "KAFKA-10706"),
    KnownBug("cut-inside-batch", "M15", "kip-101", "log-and-metadata", "cut-inside-batch",
        "a cut inside a batch removes it all and leaves the log end at the cut, over a hole",
        "Kafka's LocalLog.truncateTo"),
    KnownBug("keep-fetcher-in-new-epoch", "M28", "kip-279", "committed-prefix-agreement",
        "commit-without-replica",
        "a follower goes on as it was when its leader leads again in a later epoch",
        "a condition of the model of Kafka 3.5"),
    # -- retention: how the head of a log is deleted
    KnownBug("delete-beyond-hw", "T1", "kafka", "log-and-metadata", "deleted-early",
        "a leader deletes the head of its log up to its log end, not its high watermark",
        "KAFKA-5634 (before 1.0)"),
    # -- in-sync set: which replicas count as in sync
    KnownBug("expand-stale-process", "M4", "kafka", "no-lost-acknowledged-write", "in-sync-without",
        "the fetch of a process before the registered one lets it into the ISR",
        "KIP-903, KAFKA-14139"),
    KnownBug("expand-fenced", "M4b", "kafka", "log-and-metadata", "fenced-in-isr",
        "a fenced replica may enter the ISR", "KIP-841, KAFKA-13916"),
    KnownBug("expand-at-hw", "M5", "kafka", "no-lost-acknowledged-write", "in-sync-without",
        "a follower at the leader's own, perhaps stale, high watermark may enter the ISR",
        "KAFKA-7128"),
    KnownBug("expand-by-lag-only", "M5b", "kafka", "no-lost-acknowledged-write", "in-sync-without",
        "a follower may enter the ISR because of its lag alone, complete or not", "Liftbridge"),
    KnownBug("hw-ignores-min-isr", "M6", "kafka", "no-lost-acknowledged-write",
        "commit-below-min-isr",
        "the high watermark moves while the ISR is below MinISR", "KIP-966, KAFKA-15583"),
    KnownBug("no-epoch-fencing", "M7", "kip-279", "no-lost-acknowledged-write",
        "commit-without-replica",
        "fetches and answers of another leader epoch count", "KAFKA-7395, Liftbridge #183"),
    KnownBug("fetch-without-current-epoch", "M7b", "kafka", "no-lost-acknowledged-write",
        "cut-committed",
        "a fetch carries the last epoch of the log, but not the leader epoch it is meant for",
        "KIP-320, its first draft"),
    KnownBug("no-fsync-before-ack", "M8", "kafka", "no-lost-acknowledged-write", "forgot-synced",
        "records are acknowledged from memory although flush=sync", "NATS #7564, #7567"),
    KnownBug("unclean-as-clean", "M9", "kafka", "no-lost-acknowledged-write", "in-sync-without",
        "a process that lost data keeps its place in ISR and ELR", "KAFKA-18635"),
    KnownBug("no-maximal-isr", "M10", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "the high watermark does not wait for replicas that may already be in the ISR",
        "Kafka before KIP-497"),
    KnownBug("rollback-on-timeout", "M10b", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "an unanswered proposal counts as refused", "KIP-497, rejected design"),
    KnownBug("count-diverging-fetch", "M11", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "the offset of a fetch is noted before the test for divergence", "KAFKA-13141"),
    KnownBug("hw-from-diverging-response", "M12", "kafka", "committed-prefix-agreement",
        "log-matching", "a follower takes the high watermark of a diverging answer", "KAFKA-14704"),
    KnownBug("keep-peer-state", "M13", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a leader keeps what it knew of its followers in an earlier leader epoch", "KAFKA-13790"),
    KnownBug("expand-unheard", "M29", "kafka", "no-lost-acknowledged-write", "in-sync-without",
        "a replica that has not fetched in this leader epoch may enter the ISR",
        "a condition of the model of KIP-966"),
    # -- high watermark: what counts as committed, and who may read it
    KnownBug("stale-epoch-response", "M16", "kafka", "committed-prefix-agreement", "cut-committed",
        "a follower takes an answer that a leader gave in an older leader epoch",
        "Kafka before KIP-320"),
    KnownBug("ack-on-demotion", "M17", "kafka", "no-lost-acknowledged-write", "acknowledged-early",
        "a deposed leader acknowledges what still waits for the ISR", "KAFKA-20634"),
    KnownBug("ack-before-isr", "M18", "kafka", "no-lost-acknowledged-write", "acknowledged-early",
        "acks=all is answered after the local append, before the ISR has the batch",
        "Redpanda #6018/#6019"),
    KnownBug("read-beyond-hw", "M19", "kafka", "reads-below-hw", "read-above-hw",
        "consumers are served up to the log end instead of the high watermark", "Redpanda #14794"),
    KnownBug("commit-leader-only", "M20", "kafka", "no-lost-acknowledged-write",
        "commit-without-replica", "the high watermark is the leader's log end",
        "replication without waiting, as Redis does it"),
    KnownBug("accept-any-response", "M23", "kafka", "no-lost-acknowledged-write", "cut-committed",
        "a follower takes a late second copy of an answer",
        "Kafka's fetcher, offset test left out"),
    KnownBug("match-by-offset-only", "M23b", "kafka", "no-lost-acknowledged-write", "cut-committed",
        "a follower knows an answer by its offset alone, without the last epoch",
        "found with this harness"),
    KnownBug("keep-hw-at-truncation", "M26", "kafka", "log-and-metadata", "hw-beyond-log",
        "truncation leaves the high watermark above the log end", "KAFKA-3978, KAFKA-16452"),
    # -- controller: elections, reassignment and eligible leader replicas
    KnownBug("no-partition-epoch-test", "M21", "kafka", "no-lost-acknowledged-write",
        "stale-proposal",
        "the controller accepts a proposal that rests on an old state of the partition",
        "KAFKA-12686"),
    KnownBug("elect-any-replica", "M22", "kafka", "log-and-metadata", "clean-election",
        "the controller lets the first active replica lead, even one outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)"),
    KnownBug("reassign-drops-first", "M24", "kafka", "no-lost-acknowledged-write",
        "in-sync-without",
        "a move drops the old replicas at once; the new ones count as in sync, caught up or not",
        "KIP-455, rule left out"),
    KnownBug("keep-elr-at-min-isr", "M25", "kafka", "no-lost-acknowledged-write", "isr-and-elr",
        "the ELR is kept when the ISR is at MinISR again", "KIP-966, rule left out"),
    KnownBug("accept-any-registration", "M27", "kafka", "no-lost-acknowledged-write",
        "in-sync-without",
        "a process takes the broker epoch that an earlier process of its node was given",
        "a condition of the model of KIP-966"),
    # -- idempotent producers: what a log knows of them
    KnownBug("ack-duplicate-early", "I1", "kafka", "no-lost-acknowledged-write",
        "acknowledged-early",
        "a batch that the log has already is acknowledged before the original is committed",
        "Redpanda #4366, rule left out", dimensions=("idempotent",)),
    KnownBug("keep-truncated-producers", "I2", "quorum", "no-lost-acknowledged-write",
        "duplicate-not-in-log", "a truncation leaves what is known of producers as it was",
        "KIP-98, rule left out", dimensions=("idempotent",)),
    KnownBug("forget-producers", "I3", "kip-279", "offsets-and-order", "appended-twice",
        "a process that starts does not read in its log what it should know of producers",
        "KAFKA-5435 (before 0.11)", dimensions=("idempotent",)),
    KnownBug("followers-forget-producers", "I4", "kafka", "offsets-and-order", "appended-twice",
        "only the leader that appends a batch learns of its producer, followers do not",
        "KIP-98, rule left out", dimensions=("idempotent",)),
    # -- quorum: votes and majorities
    KnownBug("count-old-terms", "R1", "quorum", "no-lost-acknowledged-write", "commit-of-old-term",
        "a record of an earlier term commits when a majority has it, with none of this term",
        "Raft's figure 8; LogCabin #44"),
    KnownBug("forget-vote", "R2", "quorum", "log-and-metadata", "one-vote-per-term",
        "a voter does not keep its vote over a restart", "PySyncObj"),
    KnownBug("cut-on-every-answer", "R3", "quorum", "no-lost-acknowledged-write", "cut-committed",
        "a follower cuts its log to where an answer begins, late or not", "PySyncObj"),
    KnownBug("last-index-matches", "R4", "quorum", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a follower's log end counts before its log is compared with the leader's",
        "the high-water mark pattern; KAFKA-13141"),
    KnownBug("no-previous-check", "R4b", "quorum", "committed-prefix-agreement", "log-matching",
        "records are appended by their index; what precedes them is not compared",
        "the high-water mark pattern, literally"),
    KnownBug("ack-before-commit", "R6", "quorum", "no-lost-acknowledged-write", "forgot-synced",
        "an acknowledgement leaves before the leader's own append is on its disk", "etcd #14370"),
    KnownBug("count-before-commit", "R7", "kafka", "no-lost-acknowledged-write", "forgot-synced",
        "a leader counts its own log end before its disk has it: what it then answers leaves early",
        "Raft's thesis, 10.2.1, rule left out"),
    # -- Liftbridge: defects of its code
    KnownBug("liftbridge-epoch-offset", "LB1", "liftbridge", "committed-prefix-agreement",
        "log-matching",
        "a leader answers one too high where it learned the next leader epoch from records",
        "Liftbridge 26.01.1, leader epoch cache"),
    KnownBug("liftbridge-fallback", "LB2", "liftbridge", "no-lost-acknowledged-write",
        "cut-committed",
        "a follower whose LeaderEpoch offset request failed three times cuts to its own HW",
        "Liftbridge 26.01.1, truncation of a follower"),
    KnownBug("liftbridge-witness", "LB3", "liftbridge", "no-lost-acknowledged-write",
        "deposed-while-alive", "reports about a leader outlive it and count against its successor",
        "Liftbridge 26.01.1, leader reports"),
    KnownBug("liftbridge-monotone", "LB4", "liftbridge", "no-lost-acknowledged-write",
        "commit-without-replica",
        "a follower that came back with a shorter log is counted at its old log end",
        "Liftbridge 26.01.1, in-sync offsets"),
    # -- disks: what a broker makes of errors and damage
    KnownBug("serve-unchecked", "D1", "kafka", "offsets-and-order", "damage-unnoticed",
        "a broker believes what its disk gives back, and serves it",
        "brokers that leave checksums to their readers", ("bit-flip", "torn-write")),
    KnownBug("retry-fsync", "D2", "quorum", "committed-prefix-agreement", "synced-after-error",
        "a sync that failed is tried again, and its writes count as synced then",
        "PostgreSQL before 12 (fsyncgate)", ("fsync-error",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bugs:
    """The bugs that are on: one field for each bug of the catalogue."""

    truncate_to_own_hw: bool = False
    truncate_to_leader_hw: bool = False
    never_truncate: bool = False
    epoch_end_without_epoch: bool = False
    undefined_to_own_hw: bool = False
    one_round_only: bool = False
    no_local_lookup: bool = False
    compare_offsets_only: bool = False
    lazy_epoch_cache: bool = False
    keep_empty_epoch: bool = False
    cut_inside_batch: bool = False
    keep_fetcher_in_new_epoch: bool = False
    expand_stale_process: bool = False
    expand_fenced: bool = False
    expand_at_hw: bool = False
    expand_by_lag_only: bool = False
    hw_ignores_min_isr: bool = False
    no_epoch_fencing: bool = False
    fetch_without_current_epoch: bool = False
    no_fsync_before_ack: bool = False
    unclean_as_clean: bool = False
    no_maximal_isr: bool = False
    rollback_on_timeout: bool = False
    count_diverging_fetch: bool = False
    hw_from_diverging_response: bool = False
    keep_peer_state: bool = False
    expand_unheard: bool = False
    stale_epoch_response: bool = False
    ack_on_demotion: bool = False
    ack_before_isr: bool = False
    read_beyond_hw: bool = False
    commit_leader_only: bool = False
    accept_any_response: bool = False
    match_by_offset_only: bool = False
    keep_hw_at_truncation: bool = False
    no_partition_epoch_test: bool = False
    elect_any_replica: bool = False
    reassign_drops_first: bool = False
    keep_elr_at_min_isr: bool = False
    accept_any_registration: bool = False
    ack_duplicate_early: bool = False
    keep_truncated_producers: bool = False
    forget_producers: bool = False
    followers_forget_producers: bool = False
    count_old_terms: bool = False
    forget_vote: bool = False
    cut_on_every_answer: bool = False
    last_index_matches: bool = False
    no_previous_check: bool = False
    ack_before_commit: bool = False
    count_before_commit: bool = False
    liftbridge_epoch_offset: bool = False
    liftbridge_fallback: bool = False
    liftbridge_witness: bool = False
    liftbridge_monotone: bool = False
    delete_beyond_hw: bool = False
    serve_unchecked: bool = False
    retry_fsync: bool = False


RULES: Final[dict[str, dict[str, Any]]] = {
    "truncate_to_own_hw": {"truncation": Truncation.OWN_HW},
    "truncate_to_leader_hw": {"truncation": Truncation.LEADER_HW},
    "never_truncate": {"truncation": Truncation.NONE},
    "epoch_end_without_epoch": {"truncation": Truncation.EPOCH_END_V0},
    "undefined_to_own_hw": {"truncation": Truncation.EPOCH_END_V1},
    "count_old_terms": {"counts_old_terms": True},
    "count_diverging_fetch": {"last_index_matches": True},
    "last_index_matches": {"last_index_matches": True},
    "no_epoch_fencing": {"fences_by_epoch": False},
    "no_previous_check": {"truncation": Truncation.NONE, "appends_by_index": True},
    "liftbridge_fallback": {"falls_back_after": 3},
}
"""The bugs that are a rule of some protocol: the fields of `Protocol` that they replace."""

NAMES: Final = tuple(bug.name for bug in KNOWN_BUGS)
_BY_ANY_NAME: Final = {key.lower(): bug.name for bug in KNOWN_BUGS for key in (bug.name, bug.code)}

assert {f.name.replace("_", "-") for f in fields(Bugs)} == set(NAMES)


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
    return Bugs(**{f.name: True for f in fields(Bugs) if f.name in wanted})


def apply_bugs(protocol: Protocol, bugs: Bugs) -> Protocol:
    """Return the protocol with its rules replaced by those of the bugs that are on. With any bug
    on, a node does not stop when it is asked to cut its log below its high watermark: the harm must
    happen, so that the checker can find it."""
    for name, rules in RULES.items():
        if getattr(bugs, name):
            protocol = replace(protocol, **rules)
    return protocol if bugs == Bugs() else replace(protocol, hw_only_rises=False)
