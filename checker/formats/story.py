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
    "process-lives": "a process ends only when it is asked to",
}
"""The rules of replication that a step of a story can break, each in a sentence."""


class StoryStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a story. `kind` is a trace event's name, "fault", "send", "read", "exit" or
    "log".

    `breaks` names what happened to the record, "" if nothing did: "cut:<reason>" (it was cut away),
    "elected-without", "overwritten". `rule` is the rule of `RULES` that the step breaks. Neither
    holds a node, offset or time, so that two stories of one bug have the same. `partition_wide`
    marks a step that is about the partition, not about the record.
    """

    t_us: Time
    text: str
    kind: str
    node: str = ""
    breaks: str = ""
    rule: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of time on the cause strip: something is true of `who` from `from_us` to
    `until_us`.

    `lane`: "fault" (`what` is the fault), "led" (of `epoch`), "down", "holds" (the record), "other"
    (another record stands at its offset).
    """

    lane: Literal["fault", "led", "down", "holds", "other"]
    who: str
    from_us: Time
    until_us: Time
    what: str = ""
    epoch: Number = -1


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A story file: the steps that led to `about`, the anomaly that breaks `property`.

    The record is `value` at `offset` of `partition`, of `epoch`; -1 where that is not known or the
    finding is about no record. `cause` and `loss` are indices of steps, -1 where there is none:
    the step or fault that caused the failure, and the first at which the record was gone. `traced`
    says whether the brokers left traces; without them the story rests on clients and faults.
    """

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
    loss_us: OptionalTime = -1
    traced: bool = True
    steps: tuple[StoryStep, ...] = ()
    spans: tuple[Span, ...] = ()
    left_out: Number = 0
    format: Number = 1
