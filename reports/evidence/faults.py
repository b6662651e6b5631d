"""The faults of a run as executed, for pages: when each acted, on whom, and with what effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from markupsafe import Markup

from checker.ingest.fault_windows import FaultRecord, joined_faults
from nemesis.faults import KINDS, FaultKind
from nemesis.formats.fault_log import FaultLine, took_effect
from nemesis.formats.schedule import Fault
from reports import wording

Status = Literal["done", "skipped", "missed", "waiting"]

_PATTERNS: Final = {
    "plain": "color-mix(in srgb, {0} 38%, var(--surface))",
    "bars": "repeating-linear-gradient(90deg, color-mix(in srgb, {0} 45%, var(--surface)) 0 5px,"
    " color-mix(in srgb, {0} 22%, var(--surface)) 5px 8px)",
    "stripes": "repeating-linear-gradient(135deg,"
    " color-mix(in srgb, {0} 42%, var(--surface)) 0 6px,"
    " color-mix(in srgb, {0} 26%, var(--surface)) 6px 9px)",
    "dots": "radial-gradient(circle at 2px 2px,"
    " color-mix(in srgb, {0} 50%, var(--surface)) 1px, transparent 1.5px) 0 0 / 5px 5px,"
    " color-mix(in srgb, {0} 24%, var(--surface))",
}
"""The background of a bar in CSS for each pattern; {0} is the colour of its kind of fault."""


@dataclass(frozen=True)
class Executed:
    """One fault of the run. Times are monotonic microseconds; `end_us` is when it was undone.

    `status`: "done" means injected, "skipped" that it found no target, "missed" that its trigger
    never came, "waiting" that the run ended before it was due. `counts` are the numbers of its
    effects by name, such as "dropped". `touched` is False when a link fault affected no message,
    None if not counted. `took_effect` is as in `nemesis.formats.fault_log`. `asked` is the fault of
    the schedule, None if the schedule cannot be read."""

    index: int
    what: str
    status: Status
    on: str = ""
    start_us: int = 0
    end_us: int = 0
    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    touched: bool | None = None
    healed: bool = False
    took_effect: bool = False
    asked: Fault | None = field(default=None, repr=False)

    @property
    def letter(self) -> str:
        """The one letter that stands for the fault's kind on the time view."""
        return letter(self.what)

    @property
    def kind(self) -> type[FaultKind]:
        """The traits of the fault's kind; an unknown kind has the defaults."""
        return KINDS.get(self.what, FaultKind)

    @property
    def victims(self) -> str:
        """The nodes that the fault hit, or the links with arrows (`n1 ⇄ n2`)."""
        if self.kind.on_processes or not self.links:
            return wording.listing(self.nodes) or wording.target(self.on)
        return wording.listing(_arrows(self.links))

    @property
    def short_victims(self) -> str:
        """The nodes or links that it hit, short enough for a bar: of an isolated node no links."""
        return wording.listing(self.nodes) if self.kind.bar_names_nodes else self.victims

    def title(self, zero_us: int) -> str:
        return f"{self.what} {self.victims}: {self.times(zero_us)}"

    def times(self, zero_us: int) -> str:
        """Return when the fault took effect, in seconds since the storm began."""
        start = f"{(self.start_us - zero_us) / 1e6:.3f} s"
        if not self.kind.lasts:
            return start
        end = f"{(self.end_us - zero_us) / 1e6:.3f} s"
        left = "" if self.healed else ", never undone"
        return f"{start} to {end} ({wording.span(self.end_us - self.start_us)}{left})"

    def effect(self) -> str:
        if self.status == "skipped":
            return f"Skipped: {self.detail or 'it found no target'}."
        if self.status == "missed":
            return f"Missed: {self.detail or 'its trigger never came'}."
        if self.status == "waiting":
            return "Not reached before the run ended."
        if on_disk := self._counted("writes", "calls"):
            return on_disk
        if self.kind.on_processes or self.touched is None:
            did = "Links changed" if self.links and not self.kind.on_processes else "Took effect"
            return f"{did}{f': {self.detail}' if self.detail else ''}."
        if counted := self._counted("stopped", "connections", "packets"):
            return counted
        if not self.touched:
            return "No message was affected." if self.links else "No process came to it."
        known = [(name, self.counts[name]) for name in _OF_MESSAGES if name in self.counts]
        parts = [f"{wording.count(number, 'message')} {name}" for name, number in known]
        return f"{' and '.join(parts)}."

    def _counted(self, *names: str) -> str:
        """Word the first of these counts that is known, "" if none is."""
        for name in names:
            if name in self.counts:
                noun, plural, became = _EFFECTS[name]
                return f"{wording.count(self.counts[name], noun, plural)} {became}."
        return ""


def letter(what: str) -> str:
    """Return the letter that stands for a kind of fault."""
    return KINDS[what].letter if what in KINDS else "?"


def styles() -> Markup:
    """Return the style sheet of the bars: a colour and a pattern for each kind of fault."""
    return Markup(
        "\n".join(
            f".f-{name} {{ background: {_PATTERNS[kind.pattern].format(kind.colour)}; }}"
            for name, kind in KINDS.items()
        )
    )


def _arrows(links: Iterable[tuple[str, str]]) -> list[str]:
    """Directed links as text; a pair that exists in both directions becomes one `a ⇄ b`."""
    pairs = list(dict.fromkeys(links))
    both = set(pairs)
    if len(pairs) > 2 and all((b, a) in both for a, b in pairs):
        shared = set.intersection(*({a, b} for a, b in pairs))
        if len(shared) == 1:
            hub = shared.pop()
            others = sorted({node for pair in pairs for node in pair} - {hub}, key=_in_order)
            more = f" and {len(others) - 7} more" if len(others) > 8 else ""
            return [f"{hub} ⇄ {', '.join(others[:7] if more else others)}{more}"]
    made: list[str] = []
    for a, b in pairs:
        if (b, a) not in both:
            made.append(f"{a} → {b}")
        elif f"{b} ⇄ {a}" not in made:
            made.append(f"{a} ⇄ {b}")
    return made


def _in_order(node: str) -> tuple[str, int, str]:
    """Order brokers, clients and voters apart, c2 before c10."""
    return wording.by_number(node.replace("c", "~", 1))


def join(
    lines: Iterable[FaultLine],
    asked: tuple[Fault, ...],
    restarts: Mapping[str, list[int]],
    last_us: int,
) -> tuple[Executed, ...]:
    """Return the executed faults in schedule order, each joined from its lines in faults.jsonl.

    `asked` are the schedule's faults, `restarts` when each node's processes began (a kill ends when
    its victim is up again, whatever restarted it), `last_us` the end of the run."""
    known = joined_faults(lines)
    made = []
    for index in sorted(known.keys() | set(range(len(asked)))):
        found = known.get(index, FaultRecord([], None, None))
        wanted = asked[index] if index < len(asked) else None
        what = next((x.what for x in found.lines if x.what), wanted.what if wanted else "?")
        on = next((x.on for x in found.lines if x.on), "") or getattr(wanted, "on", "")
        fault = Executed(index=index, what=what, status="waiting", on=on, asked=wanted)
        made.append(_executed(fault, found, restarts, last_us))
    return tuple(made)


def _executed(
    fault: Executed, found: FaultRecord, restarts: Mapping[str, list[int]], last_us: int
) -> Executed:
    inject, lines = found.injected, found.lines
    if inject is None:
        refused = next((x for x in lines if x.action in ("skipped", "missed")), None)
        if refused is None:
            return fault
        status: Status = "skipped" if refused.action == "skipped" else "missed"
        at = refused.t_us
        return replace(fault, status=status, start_us=at, end_us=at, detail=refused.detail)
    start = inject.t_us
    end = (found.healed.done_us or found.healed.t_us) if found.healed is not None else None
    if fault.kind.ends_process:
        # Whoever restarted them: a kill is over when all its victims are up again.
        ups = [next((t for t in restarts.get(n, ()) if t > start), 0) for n in inject.nodes]
        end = max(ups) if ups and all(ups) else end
    if not fault.kind.lasts:
        end = inject.done_us or start
    effects = [x for x in lines if x.action == "effect"]
    return replace(
        fault,
        status="done",
        start_us=start,
        end_us=max(start, last_us if end is None else end),
        nodes=inject.nodes,
        links=inject.links,
        detail=inject.detail,
        healed=end is not None,
        touched=any(x.affected for x in effects) if effects else None,
        took_effect=took_effect((x.action, x.affected) for x in lines),
        counts=dict(_counts(effects)),
    )


_OF_MESSAGES: Final = ("dropped", "delayed", "duplicated")
_EFFECTS: Final = {
    "writes": ("write", "", "failed, late or lost"),
    "calls": ("system call", "", "changed"),
    "stopped": ("process", "processes", "stopped there"),
    "connections": ("connection", "", "affected"),
    "packets": ("packet", "", "dropped or answered with a reset"),
}
"""What is counted where no messages are seen, and what became of it."""


def _counts(effects: list[FaultLine]) -> Iterator[tuple[str, int]]:
    """Yield the sum of each count; one of 0 says nothing if others of its fault may be more."""
    for name in (*_OF_MESSAGES, *_EFFECTS):
        known = [n for n in (getattr(x, name) for x in effects) if isinstance(n, int)]
        if any(known) or (known and name not in (*_OF_MESSAGES, "stopped")):
            yield name, sum(known)


def sentence(fault: Executed, zero_us: int) -> str:
    """Describe a fault in one sentence: its kind, which nodes it hit, when, and its effect."""
    head = wording.intent(fault.asked) if fault.asked else f"{fault.what.capitalize()} {fault.on}"
    wanted = f" {wording.asked(fault.asked)}" if fault.asked else ""
    if fault.status != "done":
        return f"{head}{wanted}. {fault.effect()}"
    return f"{head}{wanted}: hit {fault.victims}, {fault.times(zero_us)}. {fault.effect()}"


def in_vain(faults: Sequence[Executed]) -> list[str]:
    """Return a clause for each fault that was refused, and for each that stopped a node which an
    earlier fault had stopped and not yet released."""
    found = []
    for fault in faults:
        if fault.status == "skipped" and fault.detail:
            found.append(f"{fault.what} skipped: {fault.detail}")
        for other in faults if _stops(fault) else ():
            both = set(fault.nodes) & set(other.nodes)
            if both and _stops(other) and other.start_us < fault.start_us < other.end_us:
                found.append(f"{fault.what} hit {wording.listing(both)} during a {other.what}")
    return found


def _stops(fault: Executed) -> bool:
    return fault.status == "done" and (fault.kind.ends_process or fault.what == "pause")
