"""A trace event in English: the one wording for timelines, pages and simulated runs. Pure.

`action` is a predicate: the caller puts the node's name in front and a full stop at the end.
`message` is the label of an arrow for the message that shows the event's effect. A caller that
knows more than the event (which record is lost, which events came before) adds that itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from node.formats import trace
from node.formats.bounds import Number, Offset, Time

EXIT: Final = "exit"
"""Event name for the end of a process, which no trace records: readers make it of exits.jsonl."""


class Event(msgspec.Struct, frozen=True):
    """A trace event as readers use it; `node.formats.trace.FIELDS` defines each field. Fields that
    an event does not have keep their defaults; a field in the file that is not named here is
    skipped."""

    event: str
    t_us: Time = 0
    node: str = ""
    incarnation: Number = 0
    partition: str = ""
    clean: bool = True
    broker_epoch: Number = -1
    role: str = ""
    leader: str | None = None
    leader_epoch: Number = -1
    partition_epoch: Number = -1
    isr: tuple[str, ...] = ()
    maximal_isr: tuple[str, ...] = ()
    elr: tuple[str, ...] = ()
    unclean: bool = False
    witnesses: tuple[str, ...] = ()
    base_offset: Offset = -1
    from_leo: Offset = -1
    from_start: Offset = -1
    start: Offset = -1
    leo: Offset = -1
    hw: Offset = -1
    reason: str = ""
    acks: Number | None = None
    client: str = ""
    follower: str = ""
    epoch: Number = -1
    end_offset: Offset = -1
    candidate: str = ""
    term: Number = -1
    pre: bool = False
    kind: str = ""
    source: str = ""
    state: str = ""
    broker: str = ""
    before: str = ""
    at: str = ""
    offset: int = -1
    key: str = ""
    what: str = ""
    hash: str = ""
    applied: Offset = -1
    batch_end: Offset = -1
    protocol: str = ""
    replicas: tuple[str, ...] = ()
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()
    last_known_elr: tuple[str, ...] = ()
    min_isr: Number = -1


def parse(fields: Mapping[str, Any]) -> Event:
    """Return the event of a decoded line. Raises msgspec.ValidationError."""
    return msgspec.convert(fields, Event)


def action(e: Event) -> str:
    """Return the action of `e.node`, for example "appends offset 5 as leader of epoch 2"; "" if the
    event is unknown."""
    say = _ACTIONS.get(e.event)
    return say(e) if say is not None else ""


def message(e: Event) -> str:
    """Return the message that carries the effect of `e` to another node or a client, for example
    "fetch-response: offset 5 of epoch 2"; "" if none does."""
    say = _MESSAGES.get(e.event)
    return say(e) if say is not None else ""


def offsets(base: int, end: int) -> str:
    """Return the offsets from `base` to `end` - 1 as a phrase: "offset 5", "offsets 5-7"."""
    return f"offset {base}" if end - base == 1 else f"offsets {base}-{end - 1}"


def leadership(
    leader: str | None,
    leader_epoch: int,
    isr: Iterable[str],
    elr: Iterable[str] = (),
    *,
    unclean: bool = False,
) -> str:
    """Return leader and replica sets as a phrase: "n2 leads epoch 2, ISR [n2, n3]"."""
    how = " after an unclean election" if unclean else ""
    eligible = tuple(elr)
    return (
        f"{leader or 'nobody'} leads epoch {leader_epoch}{how}, ISR {_nodes(isr)}"
        f"{f', ELR {_nodes(eligible)}' if eligible else ''}"
    )


def log_ends(leo: int, hw: int) -> str:
    """Return the ends of a replica's log as a phrase: "log end 6, high watermark 5"."""
    return f"log end {leo}, high watermark {hw}"


def _nodes(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _started(e: Event) -> str:
    again = " again" if e.incarnation > 1 else ""
    lost = "" if e.clean else "; its disk may have lost data"
    return f"starts{again} (process {e.incarnation}){lost}"


def _role(e: Event) -> str:
    ends = log_ends(e.leo, e.hw)
    if e.role == "leader":
        return f"becomes leader of epoch {e.leader_epoch} ({ends})"
    if e.role == "follower":
        return f"follows {e.leader or 'nobody'} in epoch {e.leader_epoch} ({ends})"
    if e.role == "none":
        return f"has no role in epoch {e.leader_epoch} ({ends})"
    return f"has role {e.role} in epoch {e.leader_epoch} ({ends})"


def _append(e: Event) -> str:
    span = offsets(e.base_offset, e.leo)
    if e.role == "leader":
        return f"appends {span} as leader of epoch {e.leader_epoch}"
    return f"copies {span} of epoch {e.leader_epoch} from its leader"


_TRUNCATES_TO: Final = {
    "own-high-watermark": "its own high watermark",
    "leader-high-watermark": "its leader's high watermark",
    "offset-for-leader-epoch": "the end of its last epoch on the leader",
    "conflicting-entry": "the first record that its leader has in another epoch",
    "diverging-epoch": "where it diverges from its leader's log",
    "out-of-range": "its leader's log end",
    "damaged": "what is not damaged on its disk",
}


def _truncated(e: Event) -> str:
    to = _TRUNCATES_TO.get(e.reason)
    why = f", to {to}" if to is not None else f" ({e.reason})" if e.reason else ""
    return f"truncates its log from {e.from_leo} to {e.leo}{why}"


def _deleted(e: Event) -> str:
    why = {
        "retention": "; all of it is committed",
        "leader": ", as its leader's does",
        "restart": ", where its leader's does; it had nothing from there on",
        "truncated": ": of what was cut nothing is left",
    }.get(e.reason, "")
    return f"deletes the head of its log: it begins at {e.start}, no longer at {e.from_start}{why}"


def _hw(e: Event) -> str:
    if e.role == "leader":
        return f"moves its high watermark to {e.hw}"
    return f"learns high watermark {e.hw} from its leader"


def _ack(e: Event) -> str:
    acks = "" if e.acks is None else f" (acks={'all' if e.acks == -1 else e.acks})"
    span = offsets(e.base_offset, e.leo)
    return f"acknowledges {span} to {e.client}{acks}, ISR {_nodes(e.isr)}, high watermark {e.hw}"


def _partition(e: Event) -> str:
    state = leadership(e.leader, e.leader_epoch, e.isr, e.elr, unclean=e.unclean)
    return f"commits: {state}"


def _damaged(e: Event) -> str:
    place = f"the value '{e.key}'" if e.key else f"the batch at {e.offset}"
    return f"finds {place} damaged on its disk: {e.what}"


def _vote(e: Event) -> str:
    return f"{'pre-vote' if e.pre else 'vote'} for {e.candidate} in term {e.term}"


_ACTIONS: Final[dict[str, Callable[[Event], str]]] = {
    trace.STARTED: _started,
    trace.STOPPED: lambda e: "shuts down",
    EXIT: lambda e: f"exits{f' ({e.reason})' if e.reason else ''}",
    trace.REGISTERED: lambda e: f"is registered with broker epoch {e.broker_epoch}",
    trace.ROLE: _role,
    trace.ISR: lambda e: f"has ISR {_nodes(e.isr)}, maximal ISR {_nodes(e.maximal_isr)}",
    trace.PROPOSED: lambda e: f"proposes ISR {_nodes(e.isr)}",
    trace.REPORTED: lambda e: f"reports that leader {e.leader} does not answer",
    trace.WITNESSED: lambda e: f"has reports from {_nodes(e.witnesses)} about leader {e.leader}",
    trace.APPEND: _append,
    trace.TRUNCATED: _truncated,
    trace.DELETED: _deleted,
    trace.DIVERGING: lambda e: (
        f"tells {e.follower} that its log diverges: epoch {e.epoch} ends at {e.end_offset}"
    ),
    trace.HW: _hw,
    trace.ACK: _ack,
    trace.DUPLICATE: lambda e: (
        f"knows {offsets(e.base_offset, e.leo)}, which {e.client} sends again"
    ),
    trace.REFUSED: lambda e: f"refuses {e.kind} from {e.source}: {e.reason}",
    trace.VOTE: lambda e: f"grants its {_vote(e)}",
    trace.CONTROLLER: lambda e: (
        f"{'becomes' if e.state == 'active' else 'resigns as'} controller in term {e.term}"
    ),
    trace.BROKER: lambda e: f"commits: {e.broker} is {e.state}",
    trace.PARTITION: _partition,
    trace.DAMAGED: _damaged,
    trace.GROUP_STATE: lambda e: f"has the state of groups below offset {e.applied} of their log",
    trace.BREAK: lambda e: f"stops at a breakpoint, before the {e.before} of '{e.at}'",
}

_MESSAGES: Final[dict[str, Callable[[Event], str]]] = {
    trace.APPEND: lambda e: (
        f"fetch-response: {offsets(e.base_offset, e.leo)} of epoch {e.leader_epoch}"
    ),
    trace.HW: lambda e: f"fetch-response: high watermark {e.hw}",
    trace.DIVERGING: lambda e: f"fetch-response: epoch {e.epoch} ends at {e.end_offset}",
    trace.ACK: lambda e: f"produce-response: {offsets(e.base_offset, e.leo)}, ISR {_nodes(e.isr)}",
    trace.PROPOSED: lambda e: f"alter-partition: ISR {_nodes(e.isr)}",
    trace.REPORTED: lambda e: f"report-leader: {e.leader} does not answer",
    trace.VOTE: lambda e: f"vote-response: {_vote(e)}",
    trace.REFUSED: lambda e: f"{e.kind}: refused ({e.reason})",
}
