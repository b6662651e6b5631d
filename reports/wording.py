"""Numbers, times and faults in words, as the page and the terminal say them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from checker.formats.verdict import Verdict
from nemesis.formats.schedule import (
    After,
    Break,
    Bridge,
    Cut,
    Delay,
    ElectPreferred,
    ElectUnclean,
    Fault,
    Isolate,
    Link,
    Loss,
    PowerCut,
    Reassign,
    Release,
    Ring,
    SetMinIsr,
    Stop,
    Upgrade,
)
from node.formats.trace import GIVEN

_ROLES = {
    "leader": "the leader",
    "follower": "a follower",
    "lagging": "a lagging follower",
    "isr": "the in-sync replicas",
    "controller": "the controller",
    "any": "any broker",
    "minority": "a minority",
    "majority": "a majority",
    "all": "all brokers",
    "voters": "the voters",
    "clients": "the clients",
    "rest": "the rest",
}
INSTANT = frozenset(
    {
        "restart",
        "upgrade",
        "resume",
        "release",
        "elect-preferred",
        "elect-unclean",
        "reassign",
        "set-min-isr",
    }
)
"""Kinds of faults that are over at once: nothing undoes them."""
_ORDINALS = {1: "first", 2: "second", 3: "third"}
LONGEST_TEXT = 1200


def clip(text: object, limit: int = LONGEST_TEXT) -> str:
    """At most `limit` characters of `text`, an ellipsis where some were cut."""
    whole = str(text)
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def bare(sentence: str) -> str:
    """A verdict's sentence without the verdict in front, where the verdict stands beside it."""
    verdict, _, rest = sentence.partition(": ")
    return rest[:1].upper() + rest[1:] if rest and verdict in set(Verdict) else sentence


def count(number: int, noun: str = "", plural: str = "") -> str:
    """`1,234`, or with a noun `1 batch`, `1,234 batches` (`plural` where an s is not enough)."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def span(us: float) -> str:
    """A length of time in microseconds at a readable precision: `312 ms`, `3.21 s`, `2 min 5 s`."""
    if us < 0:
        return "-" + span(-us)
    if us < 1_000:
        return f"{us:.0f} µs"
    if us < 100_000:
        return f"{us / 1e3:.1f} ms"
    if us < 999_500:
        return f"{us / 1e3:.0f} ms"
    if us < 119_950_000:
        return f"{us / 1e6:.2f} s" if us < 9_995_000 else f"{us / 1e6:.1f} s"
    minutes, seconds = divmod(round(us / 1e6), 60)
    if minutes < 120:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def size(count: int) -> str:
    """A file size for a person: `512 B`, `37 kB`, `1.2 MB`."""
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def listing(items: Iterable[str], limit: int = 12) -> str:
    """`n1, n2 and n3`, or the first few and `17 more`."""
    names = list(items)
    if len(names) > limit:
        return ", ".join(names[: limit - 1]) + f" and {len(names) - limit + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def target(text: str) -> str:
    """A schedule's target as a person says it: `leader:log-0` is `the leader of log-0`."""
    role, _, partition = text.partition(":")
    if role in _ROLES:
        return _ROLES[role] + (f" of {partition}" if partition else "")
    return listing(text.split(","))


def intent(fault: Fault) -> str:
    """What a fault of the schedule asks for, without its times: `Kill the leader of log-0`."""
    kinds = ", ".join(getattr(fault, "kinds", ()))
    only = f" ({kinds} only)" if kinds else ""
    match fault:
        case Cut():
            arrow = "in both directions" if fault.two_way else "one way"
            return f"Cut {target(fault.on)} from {target(fault.to)}, {arrow}"
        case Isolate():
            also = " and clients" if fault.clients else ""
            return f"Isolate {target(fault.on)} from all other nodes{also}"
        case Bridge():
            return f"Split the brokers so that both halves reach only {target(fault.on)}"
        case Ring():
            return "Cut links so that every broker sees a different majority"
        case Delay():
            jitter = f" ± {fault.jitter_ms} ms" if fault.jitter_ms else ""
            link = _link(fault)
            return f"Delay messages {link} by {fault.delay_ms} ms{jitter}{only}"
        case Loss():
            return f"Lose {fault.percent} % of messages {_link(fault)}{only}"
        case Link():
            return _rule(fault)
        case PowerCut():
            kept = "a drawn part" if fault.keep_percent is None else f"{fault.keep_percent} %"
            return f"Cut the power of {target(fault.on)}: {kept} of the unsynced bytes remain"
        case Break():
            fields = _fields(fault.match)
            return (
                f"Stop {target(fault.on)} before the {fault.before} of the turn with the "
                f"{_nth(fault.nth)} '{fault.event}' event{f' with {fields}' if fields else ''}"
            )
        case Release():
            return f"Undo '{fault.of}'"
        case Stop():
            return f"Shut down {target(fault.on)} in good order"
        case Upgrade():
            return f"Restart {target(fault.on)} with protocol {fault.protocol}"
        case ElectPreferred():
            if fault.first:
                return f"Let {fault.first} lead {fault.partition}, and be its first replica"
            return f"Let the first replica of {fault.partition} lead"
        case ElectUnclean():
            return f"Let any active replica of {fault.partition} lead if nobody does"
        case Reassign():
            return _move(fault)
        case SetMinIsr():
            return f"Set min_isr to {fault.min_isr}"
    return f"{str(fault.__struct_config__.tag).capitalize()} {target(fault.on)}"


def _move(fault: Reassign) -> str:
    if not fault.replicas:
        return f"Cancel the move of {fault.partition}"
    if fault.replicas == "rotate":
        return f"Move each replica of {fault.partition} to the next broker"
    return f"Move {fault.partition} to {target(fault.replicas)}"


def _rule(fault: Link) -> str:
    """A link rule: `Drop fetched messages from n1 to n2 with hw at least 50`."""
    which = " ".join(filter(None, (", ".join(fault.kinds), "messages", _link(fault))))
    share = f"{fault.percent} % of " if fault.percent < 100 else ""
    most = f"at most {fault.limit} " if fault.limit is not None else ""
    fields = " and ".join(f"{name} {_wanted(value)}" for name, value in fault.match.items())
    late = f" by {fault.delay_ms} ms" if fault.delay_ms else ""
    late += f" ± {fault.jitter_ms} ms" if fault.jitter_ms else ""
    fitting = f" with {fields}" if fields else ""
    return f"{fault.action.capitalize()} {share}{most}{which}{fitting}{late}"


def _wanted(value: object) -> str:
    """What a match asks of one field."""
    if isinstance(value, dict) and GIVEN in value:
        return "given" if value[GIVEN] else "not given"
    if isinstance(value, dict):
        return " and ".join(f"{str(bound).replace('_', ' ')} {n}" for bound, n in value.items())
    return str(value)


def _link(fault: Delay | Loss | Link) -> str:
    if fault.two_way:
        return f"between {target(fault.on)} and {target(fault.to)}"
    return f"from {target(fault.on)} to {target(fault.to)}"


def asked(fault: Fault) -> str:
    """When a fault of the schedule was due, and for how long."""
    if fault.after is not None:
        when = _trigger(fault.after)
    else:
        when = f"at {(fault.at_ms or 0) / 1000:.3f} s"
    if str(fault.__struct_config__.tag) in INSTANT:
        return when
    if fault.for_ms is None:
        return f"{when}, until the final heal"
    return f"{when}, for {span(fault.for_ms * 1000)}"


def _trigger(after: After) -> str:
    fields = _fields(after.match)
    later = f" + {span(after.delay_ms * 1000)}" if after.delay_ms else ""
    fitting = f" with {fields}" if fields else ""
    return f"after the {_nth(after.nth)} '{after.event}' event{fitting}{later}"


def _nth(number: int) -> str:
    return _ORDINALS.get(number, f"{number}th")


def _fields(match: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {_wanted(value)}" if isinstance(value, dict) else f"{name} = {value}"
        for name, value in match.items()
    )


def place_of(path: Path) -> str:
    """A folder as a person names it beside the store: from its last `store` on, else its name."""
    parts = path.parts
    if "store" in parts:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index("store") :])
    return "/".join(parts[-2:])


def folder_of(replay: str, run: str) -> str:
    """The run folder as the replay command names it, so that other commands can name it too."""
    try:
        parts = shlex.split(replay)
    except ValueError:
        parts = []
    if "--schedule" in parts[:-1]:
        return parts[parts.index("--schedule") + 1]
    return f"store/{run}"
