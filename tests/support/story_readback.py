"""Reads the sentences of stories back, and checks each against the evidence by a slow reading.

The reading shares nothing with the builder: it keeps the whole log of every replica as a list, one
entry an offset, at every event, and looks up in that what a sentence states. A sentence that it
cannot read counts as false."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from checker.formats.story import Span, Story, StoryStep
from checker.story import story
from harness.formats.history import show_value
from harness.search.grammar.phrases import compose
from harness.search.worlds.outcome import failure_of
from harness.sim.run import SimResult, simulate
from nemesis.faults import KINDS
from nemesis.formats.fault_log import FINAL_HEAL, FaultLine
from node.core.bugs import KNOWN_BUGS
from node.formats.trace import TraceEvent

Cell = tuple[str, int, int]
"""Who wrote what stands at an offset as a leader, when, and at which offset."""


@dataclass
class SlowReading:
    """Every replica's log after each event of one partition, as lists of cells."""

    run: SimResult
    partition: str
    states: list[dict[str, list[Cell]]] = field(default_factory=list)
    starts: list[dict[str, int]] = field(default_factory=list)
    events: list[TraceEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        logs: dict[str, list[Cell]] = {}
        begins: dict[str, int] = {}
        prefixes: dict[tuple[int, str], list[Cell]] = {}
        lost = sorted(self._lost_disks())
        for e in sorted(self.run.trace, key=lambda e: e["t_us"]):
            if e.get("partition", self.partition) != self.partition:
                continue
            while lost and lost[0][0] < e["t_us"]:
                _, which, leo = lost.pop(0)
                logs = {**logs, which: logs.get(which, [])[:leo]}
            kind, node = e["event"], e["node"]
            own = list(logs.get(node, []))
            if kind == "append":
                own = self._appended(e, own, prefixes)
            elif kind in ("truncated", "role"):
                own = own[: e["leo"]]
            elif kind == "deleted" and e["leo"] == e["start"]:
                own = prefixes.get((e["start"], e["hash"]), [("deleted", 0, 0)] * e["start"])
            logs = {**logs, node: own}
            begins = begins | ({node: e["start"]} if kind == "deleted" else {})
            self.starts.append(begins)
            self.events.append(e)
            self.states.append(logs)

    def _lost_disks(self) -> Iterator[tuple[int, str, int]]:
        """Yield (time, node, log end) of each disk that lost data: the last end of a process before
        the node takes a role again, and the log end that it has then, or in the end."""
        hit = [x for x in self.run.faults if x.action == "inject" and KINDS[x.what].loss]
        for fault, node in ((x, node) for x in hit for node in x.nodes):
            ends = [x.t_us for x in self.run.exits if x.node == node and x.t_us >= fault.t_us]
            roles = [
                (e["t_us"], e["leo"])
                for e in sorted(self.run.trace, key=lambda e: e["t_us"])
                if (e["event"], e["node"], e.get("partition")) == ("role", node, self.partition)
                if ends and e["t_us"] > max(ends[0], fault.t_us)
            ]
            kept = (r for r in self.run.logs.get(node, ()) if r.partition == self.partition)
            back_us, leo = roles[0] if roles else (1 << 62, max((r.leo for r in kept), default=0))
            before = [t_us for t_us in ends if t_us <= back_us]
            if before:
                yield before[-1], node, leo

    def _appended(
        self, e: TraceEvent, own: list[Cell], prefixes: dict[tuple[int, str], list[Cell]]
    ) -> list[Cell]:
        base, leo, place = e["base_offset"], e["leo"], (e["leo"], e["hash"])
        if e["role"] == "follower" and place in prefixes:
            return list(prefixes[place])
        own = own[:base] + [("?", 0, o) for o in range(len(own), base)]
        made = own + [(e["node"] + e["role"][:1], e["t_us"], o) for o in range(base, leo)]
        if e["role"] == "leader":
            prefixes[place] = made
        return made

    def at(self, t_us: int, node: str, kind: str) -> list[int]:
        """Return the indices of the events of a node at a moment."""
        wanted, known = (t_us, node, kind), enumerate(self.events)
        return [i for i, e in known if (e["t_us"], e["node"], e["event"]) == wanted]

    def cell(self, i: int, node: str, offset: int) -> Cell | None:
        """Return what a node has at an offset after event `i`, and has not deleted."""
        log = self.states[i].get(node, []) if i >= 0 else []
        return log[offset] if self.starts[i].get(node, 0) <= offset < len(log) else None

    def before(self, t_us: int) -> int:
        """Return the index of the last event up to a moment."""
        return max((i for i, e in enumerate(self.events) if e["t_us"] <= t_us), default=-1)


@dataclass
class Reader:
    """Reads one story back; `false` collects what does not hold, as (sentence, reason)."""

    run: SimResult
    told: Story
    false: list[tuple[str, str]] = field(default_factory=list)
    record: Cell | None = None

    def __post_init__(self) -> None:
        self.slow = SlowReading(self.run, self.told.partition)
        self.record = self._find_record()

    def _find_record(self) -> Cell | None:
        """Return the record that the story is about: the first one of its epoch."""
        epoch = f"epoch {self.told.epoch}"
        for step in self.told.steps:
            if step.kind != "append" or "another record" in step.text or epoch not in step.text:
                continue
            for i in self.slow.at(step.t_us, step.node, "append"):
                e, cell = self.slow.events[i], self.slow.cell(i, step.node, self.told.offset)
                if cell is not None and e["base_offset"] <= self.told.offset < e["leo"]:
                    return cell
        span = next((s for s in self.told.spans if s.lane == "holds"), None)
        if span is None:
            return None
        middle = (span.from_us + span.until_us) // 2
        return self.slow.cell(self.slow.before(middle), span.who, self.told.offset)

    def read(self) -> int:
        """Read every sentence and span; return how many there were."""
        for step in self.told.steps:
            why = self.wrong(step)
            if why:
                self.false.append((f"{step.t_us} {step.text}", why))
        for span in self.told.spans:
            why = self.wrong_span(span)
            if why:
                self.false.append((repr(span), why))
        self.false += [("the story", why) for why in (*self._order(), *self._active())]
        return len(self.told.steps) + len(self.told.spans)

    # -- the story as a whole

    def _order(self) -> Iterator[str]:
        """Yield what stands out of order: a cause after its effect, a fault before its event."""
        steps, told = self.told.steps, self.told
        if any(a.t_us > b.t_us for a, b in pairwise(steps)):
            yield "its steps are out of order"
        for a, b in pairwise(steps):
            same = a.t_us == b.t_us and a.kind == "fault"
            if (
                same
                and b.kind not in ("fault", "fault-end", "started", "log")
                and not self._starts(b)
            ):
                yield f"{a.text} stands before what it may have waited for: {b.text}"
        if 0 <= told.cause < len(steps):
            if told.loss >= 0 and told.cause > told.loss:
                yield f"the cause {told.cause} is after the loss {told.loss}"
            if 0 <= told.loss_us < steps[told.cause].t_us:
                yield f"the cause is {steps[told.cause].t_us - told.loss_us} us after the failure"

    def _starts(self, step: StoryStep) -> bool:
        """Return whether the node of a step started in the same microsecond."""
        return bool(self.slow.at(step.t_us, step.node, "started"))

    def _active(self) -> Iterator[str]:
        """Yield the faults that are called active and were not in force, or the other way round."""
        since_us = until_us = self.told.loss_us
        if self.told.offset >= 0 and self.told.property != "liveness":
            since_us = self._sent_us()
        elif 0 <= self.told.cause < len(self.told.steps) and self.told.property != "liveness":
            since_us = min(until_us, self.told.steps[self.told.cause].t_us)
        if min(since_us, until_us) < 0:
            return
        begun = [x for x in self.run.faults if x.action == "inject"]
        for x in begun:
            inside = x.t_us <= until_us and self._end_us(x) >= since_us and self._is_here(x)
            if inside != (x.fault in self.told.active):
                was = "was not" if x.fault in self.told.active else "was"
                times = f"{x.t_us} to {self._end_us(x)}; the record {since_us} to {until_us}"
                yield f"fault {x.fault}, {x.what} {x.nodes}, {was} in force: {times}"

    def _sent_us(self) -> int:
        """Return when the operation that sent the record began, or its leader appended it."""
        acked = [
            op.op
            for op in self.run.ops
            for s in op.sends
            if op.type == "ok" and op.client == self.told.client and self.told.value >= 0
            if s.partition == self.told.partition
            if s.value <= self.told.value < s.value + s.count
        ]
        begun = [op.t_us for op in self.run.ops if op.type == "invoke" and op.op in acked[:1]]
        return begun[0] if begun else -1

    def _end_us(self, fault: FaultLine) -> int:
        """Return when a fault ended: by its own heal, or with the faults of the whole run."""
        lines = [x for x in self.run.faults if x.action == "heal" and x.t_us >= fault.t_us]
        own = [x.t_us for x in lines if x.fault == fault.fault]
        if not own and not KINDS[fault.what].lasts:
            return fault.t_us
        ends = own or [x.t_us for x in lines if x.fault == FINAL_HEAL]
        end = min(ends, default=int(self.run.trace[-1]["t_us"]))
        if KINDS[fault.what].ends_process:
            back = [
                (e["node"], int(e["t_us"]))
                for e in self.run.trace
                if e["event"] == "started" and fault.t_us < e["t_us"] <= end
            ]
            back = [(node, t_us) for node, t_us in back if node in fault.nodes]
            if fault.nodes and {node for node, _ in back} == {*fault.nodes}:
                return max(t_us for _, t_us in back)
        return end

    def _is_here(self, fault: FaultLine) -> bool:
        """Return whether a fault was on this partition, or on a node that had a replica of it."""
        named = self.run.info.partitions
        if fault.on in named:
            return fault.on == self.told.partition
        wrote = {e["node"] for e in self.slow.events if e.get("partition") and e["node"]}
        elsewhere = {*self.run.info.brokers} - {*named[self.told.partition]} - wrote
        if fault.links:
            return any(not {*link} & elsewhere for link in fault.links)
        return not fault.nodes or not {*fault.nodes} <= elsewhere

    def wrong(self, step: StoryStep) -> str:
        """Return the reason why a sentence is false, "" if it holds."""
        if step.kind in ("fault", "fault-end"):
            return self._fault(step)
        if step.kind == "read":
            return self._read(step)
        if step.kind == "send":
            return self._send(step)
        if step.kind == "exit":
            return "" if any(x.t_us == step.t_us for x in self.run.exits) else "no such exit"
        if step.kind == "log":
            return self._log_ends(step)
        if step.kind == "end":
            after = [o for o in self.run.ops if o.type == "ok" and o.t_us > step.t_us and o.sends]
            sent = {s.partition for o in after for s in o.sends}
            return "a send is acknowledged later" if self.told.partition in sent else ""
        found = self.slow.at(step.t_us, step.node, step.kind)
        if not found:
            return "no such event"
        reasons = [self._event(step, i) for i in found]
        return "" if "" in reasons else reasons[0]

    # -- events

    def _event(self, step: StoryStep, i: int) -> str:
        e, text = self.slow.events[i], step.text
        match = re.match(FORMS[step.kind], text) if step.kind in FORMS else None
        if match is None:
            return "cannot be read"
        if not _holds({k: v for k, v in match.groupdict().items() if v is not None}, e):
            return "the event says otherwise"
        return self._added(text, e, i)

    def _added(self, text: str, e: TraceEvent, i: int) -> str:
        """Return the part of the sentence that is not in its event."""
        node = e["node"]
        has = self.slow.cell(i, node, self.told.offset) == self.record and self.record is not None
        holders = sorted(n for n in self.slow.states[i] if self._holds(i, n))
        told = re.search(r"is removed from (\w+) and is (still on ([\w, ]+)|on no replica)", text)
        if told is not None:
            left = re.findall(r"[nv]\d+", told[3] or "")
            if sorted(left) != holders or has or not self._holds(i - 1, node):
                return f"holders are {holders}"
        if re.search(r", with the record", text) and not has:
            return "it does not have the record"
        if re.search(r"without the record|no longer in its log", text) and has:
            return "it has the record"
        if re.search(r": another record", text) and e["event"] == "append" and has:
            return "it is the record"
        lacking = re.search(r"although ([\w, ]+?) lacks? (it|what is committed below (\d+))", text)
        if lacking is not None:
            return self._lacks(re.findall(r"[nv]\d+", lacking[1]), e, i)
        gone = re.search(r"although offsets? (\d+)(?:-(\d+))? (?:is|are) committed", text)
        if gone is not None:
            low, high = int(gone[1]), int(gone[2] or gone[1])
            if not self._was_committed(low, high, node, i):
                return "that was not committed"
        kept = re.search(r"keeps offsets? (\d+)(?:-\d+)? of epoch \d+, which (\w+) does not", text)
        if kept is not None:
            offset = int(kept[1])
            own = self.slow.cell(i, node, offset)
            others = (
                self.slow.cell(k, kept[2], offset)
                for k in range(i, len(self.slow.states))
                if self.slow.cell(k, node, offset) == own
            )
            if own is None or all(other in (None, own) for other in others):
                return "its leader has that"
        return self._promised(text, e, i)

    def _holds(self, i: int, node: str) -> bool:
        return self.record is not None and self.slow.cell(i, node, self.told.offset) == self.record

    def _lacks(self, nodes: list[str], e: TraceEvent, i: int) -> str:
        """Return whether these nodes lack what a leader commits, or what is committed."""
        if e["event"] == "hw":
            wanted = self.slow.states[i].get(e["node"], [])[: e["batch_end"]]
        else:
            wanted = self._committed(i)
        for node in nodes:
            if self.slow.states[i].get(node, [])[: len(wanted)] == wanted:
                return f"{node} has it"
        return ""

    def _committed(self, i: int) -> list[Cell]:
        """Return the longest prefix that a leader has called committed by event `i`."""
        best: list[Cell] = []
        for k, e in enumerate(self.slow.events[: i + 1]):
            if e["event"] == "hw" and e["role"] == "leader" and e["batch_end"] > len(best):
                best = self.slow.states[k].get(e["node"], [])[: e["batch_end"]]
        return best

    def _was_committed(self, low: int, high: int, node: str, i: int) -> bool:
        had = self.slow.states[i - 1].get(node, [])[low : high + 1]
        for k, e in enumerate(self.slow.events[: i + 1]):
            moved = e["event"] == "hw" and e["role"] == "leader" and e["hw"] > high
            if moved and self.slow.states[k].get(e["node"], [])[low : high + 1] == had:
                return True
        return False

    def _promised(self, text: str, e: TraceEvent, i: int) -> str:
        """Return the statement of a sentence about the state of the partition."""
        earlier = [x for x in self.slow.events[:i] if x["event"] == "partition"]
        outside = re.search(r"from outside ISR \[([\w, ]*)\]", text)
        if outside is not None and list(earlier[-1]["isr"]) != re.findall(r"\w+", outside[1]):
            return "the ISR was another"
        only = re.search(r"although only ([\w, ]+) (?:is|are) in sync", text)
        if only is not None and len(re.findall(r"[nv]\d+", only[1])) >= earlier[-1]["min_isr"]:
            return "that is MinISR"
        fenced = re.search(r"although (\w+) is fenced", text)
        if fenced is not None:
            said = [x for x in self.run.trace if x["event"] == "broker" and x["t_us"] <= e["t_us"]]
            last = [x["state"] for x in said if x["broker"] == fenced[1]][-1:]
            if last == ["unfenced"]:
                return "it is not fenced"
        early = re.search(r", before offsets? [\d-]+ (?:is|are) committed", text)
        if early is not None and e["leo"] <= e["hw"]:
            return "it is committed"
        leads = re.search(r"although (\w+) already leads epoch (\d+)", text)
        if leads is not None and not any(
            x["event"] == "role" and x["node"] == leads[1] and x["leader_epoch"] == int(leads[2])
            for x in self.slow.events[: i + 1]
        ):
            return "it does not lead"
        return ""

    # -- clients, faults, ends

    def _fault(self, step: StoryStep) -> str:
        match = re.match(r"Fault( ends)?: ([\w-]+) ?(.*)\.$", step.text)
        if match is None:
            return "cannot be read"
        nodes = re.findall(r"\b[nvc]\d+\b", match[3].partition(", the ")[0])
        lines = [x for x in self.run.faults if x.what == match[2] and x.action == "inject"]
        if match[1]:
            lines = [x for x in lines if x.t_us <= step.t_us]
            begun = any(f"Fault: {match[2]}" in s.text for s in self.told.steps)
            return "" if lines and begun else "it did not begin"
        same = [x for x in lines if x.t_us == step.t_us and (not nodes or list(x.nodes) == nodes)]
        return "" if same else "no such fault"

    def _read(self, step: StoryStep) -> str:
        form = r"(\w+) reads (value ([\d:]+)|a damaged record) at offset (\d+)(?: from (\w+))?"
        match = re.match(form, step.text)
        if match is None:
            return "cannot be read"
        offset = int(match[4])
        values = [
            show_value(r.value + offset - r.offset) if r.value >= 0 else None
            for op in self.run.ops
            if op.t_us == step.t_us and op.client == match[1] and op.type != "invoke"
            for read in op.reads
            if read.partition == self.told.partition and read.node == (match[5] or "")
            for r in read.records
            if r.offset <= offset < r.offset + r.count
        ]
        if match[3] not in values and not (match[3] is None and None in values):
            return f"read {values}"
        stated = re.search(r"although the answer states high watermark (\d+)", step.text)
        answers = (o for o in self.run.ops if (o.t_us, o.client) == (step.t_us, match[1]))
        if stated is not None and int(stated[1]) not in {r.hw for o in answers for r in o.reads}:
            return "the answer states another high watermark"
        above = re.search(r"although (\d+) is committed", step.text)
        moves = [
            e["hw"]
            for e in self.slow.events
            if e["event"] == "hw" and e["role"] == "leader" and e["t_us"] <= step.t_us
        ]
        if above is not None and max(moves, default=0) != int(above[1]):
            return f"{max(moves, default=0)} is committed"
        return ""

    def _send(self, step: StoryStep) -> str:
        form = r"(\w+)'s send of value ([\d:]+) is acknowledged at offset (\d+)"
        match = re.match(form, step.text)
        if match is None:
            return "cannot be read"
        wanted = (step.t_us, "ok", match[1])
        acked = (s for o in self.run.ops if (o.t_us, o.type, o.client) == wanted for s in o.sends)
        found = any(s.offset <= int(match[3]) < s.offset + s.count for s in acked)
        return "" if found else "no such acknowledgement"

    def _log_ends(self, step: StoryStep) -> str:
        after = (op for op in self.run.ops if op.type == "ok" and op.t_us > step.t_us)
        later = [x.t_us for x in after if self.told.partition in {s.partition for s in x.sends}]
        silence = re.match(r"No send is acknowledged (?:for ([\d.]+) s|from here)", step.text)
        silent = f"{(min(later) - step.t_us) / 1e6:.3f}" if later else None
        if silence is not None and silence[1] != silent:
            return f"it is silent for {silent} s"
        for names, state in re.findall(r"(n\d[\w, ]*?) (?:is|are) (up|down)", step.text):
            for node in re.findall(r"n\d+", names):
                if self._is_up(node, step.t_us) != (state == "up"):
                    return f"{node} is not {state}"
        for node, end in re.findall(r"(\w+) at (\d+)", step.text):
            if len(self.slow.states[-1].get(node, [])) != int(end):
                return f"{node} ends elsewhere"
        return ""

    def _is_up(self, node: str, t_us: int) -> bool:
        ended = [x.t_us for x in self.run.exits if x.node == node and x.t_us <= t_us]
        begun = [e["t_us"] for e in self.run.trace if e["event"] == "started" and e["node"] == node]
        return not ended or any(max(ended) < t <= t_us for t in begun)

    # -- spans

    def wrong_span(self, span: Span) -> str:
        """Return why a span of the cause strip is false, "" if it holds in its middle."""
        if span.until_us - span.from_us < 2:
            return ""
        middle = (span.from_us + span.until_us) // 2
        i = self.slow.before(middle)
        if span.lane in ("holds", "other"):
            cell = self.slow.cell(i, span.who, self.told.offset)
            if cell is None:
                return "it has nothing there"
            return "" if (cell == self.record) == (span.lane == "holds") else "it is the other"
        if span.lane == "led":
            said = self.slow.events[: i + 1]
            last = [e for e in said if (e["event"], e["node"]) == ("role", span.who)][-1]
            leads = (last["role"], last["leader_epoch"]) == ("leader", span.epoch)
            return "" if leads else "it does not lead"
        if span.lane == "down":
            return "it is up" if self._is_up(span.who, middle) else ""
        return "" if any(f.what == span.what for f in self.run.faults) else "no such fault"


_SPAN: Final = r"offsets? (?P<low>\d+)(?:-(?P<high>\d+))?"
FORMS: Final = {
    "append": rf"\w+ (?:appends {_SPAN} as (?P<role>leader) of|copies offsets? [\d-]+ of) "
    r"epoch (?P<leader_epoch>\d+)",
    "ack": rf"\w+ acknowledges {_SPAN} to (?P<client>\w+) .*ISR \[(?P<isr>[\w, ]*)\], "
    r"high watermark (?P<hw>\d+)",
    "hw": r"\w+ (?P<how>moves its|learns) high watermark (?:to )?(?P<hw>\d+)",
    "truncated": r"\w+ truncates its log from (?P<from_leo>\d+) to (?P<leo>\d+)",
    "role": r"\w+ (?:becomes (?P<role>leader) of|follows (?P<leader>\w+) in|has no role in|"
    r"has role \w+ in) epoch (?P<leader_epoch>-?\d+) \(log end (?P<leo>\d+), "
    r"high watermark (?P<hw>\d+)\)",
    "partition": r"The controller commits: (?P<leader>\w+) leads epoch (?P<leader_epoch>\d+)"
    r"(?: after an unclean election)?, ISR \[(?P<isr>[\w, ]*)\]",
    "started": r"\w+ starts again \(process (?P<incarnation>\d+)\)",
    "deleted": r"\w+ deletes the head of its log: it begins at (?P<start>\d+)",
    "vote": r"\w+ grants its vote for (?P<candidate>\w+) in term (?P<term>\d+)",
    "duplicate": rf"\w+ knows {_SPAN}, which \w+ sends again",
}
"""How the sentence of each kind of event reads; its groups are named as the fields of the event."""


def _holds(said: Mapping[str, str], e: TraceEvent) -> bool:
    """Return whether an event has what a sentence says of its fields."""
    fields = {**e, "how": "moves its" if e.get("role") == "leader" else "learns"}
    if "base_offset" in e:
        fields |= {"low": e["base_offset"], "high": e["leo"] - 1}
    if "low" in said:
        said = {"high": said["low"], **said}
    return all(_shown(fields[name]) == text for name, text in said.items())


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(value)
    return "nobody" if value in (None, "") else str(value)


_CODES: Final = (
    "M1 M1b M1c M2 M2d M3 M14 T1 M4b M6 M8 M9 M12 M17 M18 M19 M20 M22 M24 M25 R4b R6 LB2"
)
OFTEN: Final = [bug for bug in KNOWN_BUGS if bug.code in _CODES.split(" ")]
"""Bugs that drawn schedules show more often than others."""


def stories(seed: int) -> Iterator[tuple[str, SimResult, Story]]:
    """Draw schedules with bugs on, without end, and yield the stories of the runs that fail."""
    rng = random.Random(seed)
    while True:
        bug = rng.choice(OFTEN)
        name, number = bug.name, rng.randrange(1 << 40)
        rng = random.Random(number)
        schedule = compose(rng, bug.protocol, (name,), bug.faults, bug.options)
        run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
        if (failure := failure_of(run)) is not None and story.subject(run.checked) is not None:
            yield f"{bug.code} {number}", run, failure.story()


def read_back(pages: int, seed: int) -> tuple[int, list[tuple[str, str, str]], Counter[Any]]:
    """Read so many stories back; return the number of sentences, the false ones, and the causes."""
    sentences, false = 0, []
    causes: Counter[Any] = Counter()
    for number, (name, run, told) in enumerate(stories(seed)):
        if number == pages:
            break
        reader = Reader(run, told)
        sentences += reader.read()
        false += [(name, *each) for each in reader.false]
        causes[told.steps[told.cause].rule or "fault" if told.cause >= 0 else "none"] += 1
    return sentences, false, causes
