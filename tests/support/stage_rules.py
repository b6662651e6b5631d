"""The arithmetic of the core, one function a command: a stage of scripts.

Epochs are written as `2@4`: epoch 2, and the offset where it begins or ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from node.core.api import Effects, Mark, Outgoing, Tick
from node.core.batch import Produced
from node.core.epochs import EpochCache, EpochEnd, diverges, truncation_target
from node.core.high_watermark import isr_high_watermark, majority_high_watermark
from node.core.isr_change import may_expand
from node.core.producers import Producers
from node.core.turn import take
from node.formats import trace
from node.formats.event_text import Event
from node.formats.messages import MetadataRequest


class _Core(NamedTuple):
    """A core whose steps have these effects."""

    effects: Effects

    def step(self, now_us: int, event: object) -> Effects:
        return self.effects


class RulesStage:
    """An epoch cache, and what a log knows of its producers."""

    def __init__(self) -> None:
        self._cache = EpochCache()
        self._known = Producers()
        self._end = 0
        self._trace: list[trace.TraceEvent] = []

    # -- epochs

    def cache(self, *begins: str) -> str:
        """Note the beginnings of these epochs; return all that are known then."""
        noted = [self._cache.note(*_pair(one)) for one in begins]
        known = " ".join(f"{epoch}@{start}" for epoch, start in self._cache.entries())
        return f"{known} ({sum(noted)} changed it)"

    def forget(self) -> None:
        self._cache = EpochCache()

    def ends(self, epoch: int, leo: int) -> str:
        """Return the answer to the question where an epoch ends in a log of this end."""
        found = self._cache.end_of(epoch, leo)
        return f"{found.epoch}@{found.end}"

    def diverges(self, ours: str, last_epoch: int, offset: int) -> str:
        """Return whether a log that ends so must be cut, whose leader has that end."""
        end = EpochEnd(*_pair(ours))
        return "yes" if diverges(end, last_epoch=last_epoch, fetch_offset=offset) else "no"

    def cut(self, leo: int, end: str) -> str:
        """Return the offset to which a log of this end is cut, by the answer of its leader."""
        return f"to {truncation_target(self._cache, leo, EpochEnd(*_pair(end)))}"

    # -- what is committed

    def isr(self, members: str, committed: int, min_isr: int, **ends: int) -> str:
        """Return the high watermark of an ISR whose members have these log ends."""
        found = isr_high_watermark(
            members.split(","), ends, committed_isr=committed, min_isr=min_isr
        )
        return f"HW {found}"

    def majority(self, *ends: int | str, start: int = 0) -> str:
        """Return the high watermark of voters (`-`: never heard of), and that of half of them."""
        names = [f"v{number}" for number in range(len(ends))]
        leos = {name: int(end) for name, end in zip(names, ends, strict=True) if end != "-"}
        whole, half = (
            majority_high_watermark(names, leos, epoch_start=start, half_is_enough=half)
            for half in (False, True)
        )
        return f"HW {whole}, by half {half}"

    def joins(self, offset: int, ago_us: int) -> str:
        """Return whether a follower may join: HW 7, the leader began at 10, the lag is 1 ms."""
        may = may_expand(fetch_offset=offset, hw=7, leso=10, caught_up_ago_us=ago_us, lag_us=1000)
        return "yes" if may else "no"

    # -- messages that leave before the commit of their turn

    def event(self, name: str, partition: str = "p", **fields: Any) -> None:
        """Add an event to the trace of the turn; fields that are not given are as usual."""
        usual = {field: getattr(Event(name), field, 0) for field in trace.FIELDS[name]}
        self._trace.append(trace.event(name, partition, **(usual | fields)))

    def leave(self, *marks: str) -> str:
        """End the turn with messages of these marks, three different ones unless named; return
        those that leave before its commit."""
        usual = ("after_commit", "if_covered", "before_commit", "if_covered")
        out = [Outgoing(mark, MetadataRequest(), mark=Mark(mark)) for mark in marks or usual]
        effects = Effects(out, self._trace)
        self._trace = []
        turn = take(_Core(effects), 0, [Tick()], deadline_us=0)
        assert sorted(each.to for each in (*turn.early, *turn.later)) == sorted(e.to for e in out)
        return " ".join(each.to for each in turn.early) or "none"

    # -- producers

    def written(self, *sizes: int, seq: int = 0, producer: int = 7, epoch: int = 0) -> None:
        """Write batches of a producer, from a sequence on."""
        for size in sizes:
            self._known.note(Produced(producer, epoch, seq), self._end, self._end + size)
            self._end, seq = self._end + size, seq + size

    def rebuild(self, end: int, producer: int, epoch: int, seq: int) -> None:
        """Know only one batch from 0, as after a start."""
        self._known.rebuild([(0, end, Produced(producer, epoch, seq))])

    def batch(self, seq: int, count: int = 1, producer: int = 7, epoch: int = 0) -> str:
        """Return what a batch is to the log, and the original of a duplicate."""
        standing, original = self._known.judge(Produced(producer, epoch, seq), count)
        if not original:
            return standing.name.lower()
        place = f"sequence {original.sequence} at {original.base}-{original.end - 1}"
        return f"{standing.name.lower()} of epoch {original.epoch}, {place}"


def _pair(text: str) -> tuple[int, int]:
    first, second = text.split("@")
    return int(first), int(second)
