"""`story.json`: how the first finding of a run happened, step by step."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from node.formats.bounds import Number, Offset, OptionalTime, Time, Value

FILE: Final = "story.json"

RULES: Final = {
    "acknowledged-early": "an acknowledgement waits until its record is committed",
    "commit-without-replica": "a record is committed when every replica that may lead has it",
    "commit-below-min-isr": "nothing is committed while fewer than MinISR replicas are in sync",
    "commit-of-old-term": "a leader commits records of earlier terms only with one of its own",
    "log-matching": "a replica's log continues its leader's log and no other",
    "cut-committed": "a committed record is not truncated",
    "cut-inside-batch": "a truncation ends where a batch ends",
    "hw-beyond-log": "a high watermark is not above the log end",
    "deleted-early": "only old committed records are deleted",
    "in-sync-without": "a replica that may lead has every committed record",
    "fenced-in-isr": "a fenced broker is in no ISR",
    "isr-and-elr": "no replica is in both ISR and ELR, and a full ISR has no ELR",
    "stale-proposal": "a proposal counts only for the state that it was made for",
    "clean-election": "only a member of ISR or ELR is elected",
    "one-leader-per-epoch": "an epoch has one leader",
    "one-vote-per-term": "a voter votes once in a term",
    "deposed-while-alive": "reports about a leader count only in its own epoch",
    "leader-without": "a leader has every acknowledged record",
    "forgot-synced": "a record that was counted as written survives the loss of power",
    "synced-after-error": "a process whose disk could not sync counts nothing that it wrote",
    "duplicate-not-in-log": "a record is called a duplicate only where the log has it",
    "appended-twice": "a record is appended once, however often it is sent",
    "read-above-hw": "a client reads only what is committed",
    "read-changed": "a record that is read is the record that was written",
    "damage-unnoticed": "a damaged batch is found before it is used",
    "not-converged": "replicas have equal logs after the faults have ended",
    "settled-again": "a record that is settled is not delivered again",
    "never-delivered": "a record is delivered until it is settled",
    "delivered-in-order": "records are delivered in the order that is promised",
    "counted-on": "each delivery of a record is counted",
    "position-kept": "a group goes on where the last confirmed commit says",
    "owner-commits": "only the present owner of a partition commits its position",
    "one-owner": "a partition has one owner in an epoch of a group",
    "epochs-rise": "the epochs of a group rise",
    "process-lives": "a process ends only when it is asked to",
    "cluster-starts": "a cluster without faults gets a leader for each partition",
}
"""The rules of replication and delivery that a step of a story can break, each in a sentence."""


class StoryStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a story. `kind` is the name of a trace event, "fault", "fault-end", "send",
    "read", "exit", "log" or "end". `breaks` says what happened to the record, "" if nothing did:
    "cut:REASON" (it was truncated, for this reason), "elected-without" (a replica without it was
    elected), "overwritten", or the rule of delivery that was broken. `rule` is the rule of `RULES`
    that the step breaks, or "". Neither holds a node, offset or time, so they are equal in two
    stories of the same bug. Of a step at which a fault begins or ends, `fault` is its number in the
    schedule and `name` names it ("kill n1, the leader of p0")."""

    t_us: Time
    text: str
    kind: str
    node: str = ""
    breaks: str = ""
    rule: str = ""
    fault: Number = -1
    name: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bar in the strip of causes that a page draws: something holds of `who` from `from_us` to
    `until_us`. `lane` says what: "fault" (`what` names the fault), "led" (the node led in `epoch`),
    "down" (it had no process), "holds" (it had the record), "other" (it had another record at that
    offset). Of a member of a group: "delivered" (it had the record and had not settled it),
    "settled" (a moment: it settled it or gave it back). "position": a commit or fetch stated that
    the group is at the offset in `what`."""

    lane: Literal["fault", "led", "down", "holds", "other", "delivered", "settled", "position"]
    who: str
    from_us: Time
    until_us: Time
    what: str = ""
    epoch: Number = -1


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `story.json`: the steps that led to the anomaly `about`, which breaks
    `property`. The record is `value` at `offset` of `partition`, appended in `epoch`; -1 if
    unknown, or if the finding is about no record. `cause` is the index of the step that caused the
    failure, `loss` of the first step after which the record was gone, `led_by` of the step at which
    the fault begins or ends that made the leader without the record lead; -1 if there is none.
    `active` are the numbers of the faults in force, on nodes of the partition, at some time from
    the sending of the record to its loss; of a failure without a record, from its cause until it
    showed, or when something stopped. `traced`: the brokers left traces; if not, the story rests on
    clients and faults."""

    about: str
    property: str
    partition: str
    offset: Offset = -1
    value: Value = -1
    epoch: Number = -1
    client: str = ""
    acknowledged_us: OptionalTime = -1
    cause: Number = -1
    loss: Number = -1
    led_by: Number = -1
    active: tuple[Number, ...] = ()
    loss_us: OptionalTime = -1
    traced: bool = True
    steps: tuple[StoryStep, ...] = ()
    spans: tuple[Span, ...] = ()
    left_out: Number = 0
    format: Number = 1
