"""Run folders with a known truth, by class: what replicas left lacks a part, or is all there.

Nodes are killed and started again as often as is drawn, and are stopped at the end. No check is
known in here. `draw` makes a member of a class or, with `wrong` false, its near miss."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.history import Send
from tests.support.checker.story import NODES, STORM_MS, Batch, P, Story

FIRST: Final = 1_000
VOTER: Final = "v1"
EVERY_MS: Final = 10


class Left:
    """The evidence of a run with three replicas: `count` records, read and in all logs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.story = s = Story()
        s.run |= {"world": "real", "capabilities": ["trace", "logs", "epochs", "hw"]}
        self.count = rng.randint(12, 20)
        self.batches: list[Batch] = [(FIRST + k, 1) for k in range(self.count)]
        self.lives = {node: rng.randint(1, 3) for node in (*NODES, VOTER)}
        """How often each node was started."""
        self.names_nodes = rng.random() < 0.6
        for k in range(self.count):
            s.send(FIRST + k, at=k, process=1, begin=EVERY_MS * k, end=EVERY_MS * k + 1)

    def read(self, begin: int, end: int, *, final: bool = False, hw: int = -1) -> None:
        """Poll records; the answer states the HW of its replica, which may be any so far."""
        runs = [(begin, FIRST + begin, end - begin)] if end > begin else []
        node = self.rng.choice(NODES) if self.names_nodes else ""
        process = 99 if final else 2
        self.story.poll(*runs, start=begin, process=process, final=final, hw=hw, node=node)

    def ends(self, *, final: bool = True) -> Story:
        """Read everything finally, stop all nodes and dump their logs."""
        s, rng = self.story, self.rng
        for node, lives in self.lives.items():
            self._live(node, lives)
        s.now_ms += 10
        s.phase("heal")
        s.phase("final")
        middle = rng.randint(1, self.count - 1)
        for begin, end in ((0, middle), (middle, self.count)) if final else ():
            self.read(begin, end, final=True, hw=self.count if rng.random() < 0.7 else -1)
        s.now_ms += 30
        s.phase("end")
        for node, lives in self.lives.items():
            if node != VOTER:
                s.event(node, "stopped", None, incarnation=lives, ms=s.now_ms - STORM_MS - 20)
            self._exit(node, lives, s.now_ms - STORM_MS - 10, code=0, by="stop")
        for node in NODES:
            s.log(node, *self.batches)
        return s

    def _live(self, node: str, lives: int) -> None:
        """Trace the lives of a node and note how all but the last ended."""
        s = self.story
        for life in range(1, lives + 1):
            ms, of = 2 * EVERY_MS * life + 2, {"incarnation": life}
            s.event(node, "started", None, ms=ms, protocol="kafka", bugs=[], **of)
            if node != VOTER:
                s.hw(node, *self.batches[: 2 * life], ms=ms + 1, **of)
                if life == lives:
                    s.hw(node, *self.batches, **of)
            if life < lives:
                self._exit(node, life, ms + EVERY_MS, code=-9, by="kill")

    def _exit(self, node: str, life: int, ms: float, **how: Any) -> None:
        self.story.exit(node, expected=True, incarnation=life, ms=ms, **how)


def an_end_is_missing(left: Left, wrong: bool) -> Story:
    """Leave out how a life of a node ended, the last one or one before."""
    s = left.ends()
    if wrong:
        del s.exits[left.rng.randrange(len(s.exits))]
    return s


def a_trace_is_cut(left: Left, wrong: bool) -> Story:
    """Let the trace of a broker end before its process, which was stopped; in a near miss it had
    been killed instead, so that nothing is missing."""
    s, rng = left.ends(), left.rng
    node = rng.choice(NODES)
    events = s.traces[node]
    if wrong:
        last = left.lives[node]
        started = [e["event"] == "started" and e["incarnation"] == last for e in events].index(True)
        first = (
            started
            if last > 1 and rng.random() < 0.3
            else rng.randint(started + 1, len(events) - 1)
        )
        del events[first:]
    elif rng.random() < 0.5:
        del events[-1]
        ended = next(e for e in s.exits if e["node"] == node and e["by"] == "stop")
        ended |= {"by": "kill", "code": -9}
    return s


def an_answer_is_ahead(left: Left, wrong: bool) -> Story:
    """Let an answer state a HW that no replica ever had, as traces say."""
    s = left.ends()
    rows = [n for n, op in enumerate(s.history) if op.reads]
    row = left.rng.choice(rows)
    ahead = left.count + left.rng.randint(1, 3) if wrong else left.count
    reads = tuple(replace(read, hw=ahead) for read in s.history[row].reads)
    s.history[row] = replace(s.history[row], reads=reads)
    return s


def one_replica_is_ahead(left: Left, wrong: bool) -> Story:
    """Let one replica alone have the last records, below its own HW: it may be truncated. In a near
    miss most have them, or a final read returned them."""
    rng, count = left.rng, left.count
    read = not wrong and rng.random() < 0.3
    s = left.ends(final=read)
    if not read:
        s.poll((0, FIRST, rng.randint(1, count - 4)), start=0, process=2)
    s.run["capabilities"] = [c for c in s.run["capabilities"] if c == "logs"]
    s.traces = {}
    del s.run["phases"]["final_us"], s.run["phases"]["heal_us"]
    for lines in s.logs.values():
        lines.clear()
    short = rng.randint(1, 3)
    ahead = 1 if wrong or read else 2
    for nth, node in enumerate(rng.sample(NODES, 3)):
        upto = count if nth < ahead else count - short
        s.log(node, *left.batches[:upto])
    return s


def an_aborted_record_stays(left: Left, wrong: bool) -> Story:
    """Let logs have a record that was refused; in a near miss it is of a transaction that aborted,
    or its answer said where it is."""
    s, rng = left.story, left.rng
    value, at = 10**5, left.count
    known = rng.random() < 0.5
    sent = Send(partition=P, value=value)
    placed = replace(sent, offset=at if known else -1)
    if wrong:
        s.op("send", "fail", sends=[sent], process=7)
    elif rng.random() < 0.5:
        more = Send(partition=P, value=value + 50)
        s.op("txn", "fail", sends=[sent, more], acked=[placed, more], process=7)
    else:
        s.op("txn" if not known else "send", "fail", sends=[sent], acked=[placed], process=7)
    left.batches.append((value, 1))
    read, left.count = left.count, left.count + 1
    made = left.ends(final=False)
    left.count = read
    made.final((0, FIRST, read), hw=read + 1)
    return made


CLASSES: Final[dict[str, tuple[Callable[[Left, bool], Story], Verdict]]] = {
    "exits": (an_end_is_missing, Verdict.UNKNOWN),
    "trace": (a_trace_is_cut, Verdict.UNKNOWN),
    "answer": (an_answer_is_ahead, Verdict.UNKNOWN),
    "one replica": (one_replica_is_ahead, Verdict.UNKNOWN),
    "aborted": (an_aborted_record_stays, Verdict.INVALID),
}
"""By class: what makes its members, and the verdict that they get."""


def draw(name: str, seed: int, *, wrong: bool) -> Story:
    """Return a member of a class, or a near miss."""
    return CLASSES[name][0](Left(random.Random(f"{name} {seed}")), wrong)
