"""The generator of schedules for the simulated world. Pure.

Most schedules are composed by the grammar. A quarter are variations of a corpus: schedules that few
others are like. In one of twenty a minority of the nodes fails for good."""

from __future__ import annotations

import functools
import random
from typing import Final, NamedTuple

import msgspec

from harness.search.draw import staying
from harness.search.draw.corpus import CORPUS
from harness.search.draw.variation import vary
from harness.search.grammar.phrases import compose
from harness.systems.floodmark.system import SYSTEM
from nemesis.formats.schedule import Schedule
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of

GENERATOR_VERSION: Final = 4035
"""The version of the generator; under another one a seed draws another schedule."""
CORPUS_SEED: Final = 1000
"""The seed whose schedules the numbers in the corpus name."""
_VARIED: Final = 4
"""One schedule in so many is a variation of the corpus."""
_STAYING: Final = 20
"""One schedule in so many has failures that stay."""


class Mixture(NamedTuple):
    """The schedules of one protocol with `bugs` on. They may have disk faults of the kinds
    `faults`, and have the options of the workload in `always`."""

    protocol: str
    bugs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    always: tuple[str, ...] = ()

    def draw(self, seed: int, number: int) -> Schedule:
        """Draw the schedule of this number, independently of all others."""
        rng = random.Random(f"search/{seed}/{number}")
        if number % _STAYING == _STAYING // 2:
            return self._staying(rng)
        return self._varied(rng) if number % _VARIED == 1 else compose(rng, *self)

    def of_corpus(self, number: int) -> Schedule:
        """Return the schedule that a number in the corpus names."""
        return compose(random.Random(f"search/{CORPUS_SEED}/{number}"), *self)

    def _varied(self, rng: random.Random) -> Schedule:
        """Vary a schedule of the corpus, with faults and options of another drawn one."""
        base = self.of_corpus(rng.choice(corpus(self.protocol)))
        return vary(rng, base, compose(rng, *self))

    def _staying(self, rng: random.Random) -> Schedule:
        drawn = compose(rng, *self)
        cluster = staying.fit(rng, drawn.cluster)
        fitting = msgspec.structs.replace(drawn, cluster=cluster)
        return staying.stays(rng, fitting, SYSTEM.limits(cluster).recovery_ms)


@functools.cache
def corpus(protocol: str) -> tuple[int, ...]:
    """Return the numbers of the corpus for a protocol; those of a protocol that elects alike if it
    has none of its own."""
    rows = [line.split() for line in CORPUS.splitlines() if line]
    votes = protocol_of(protocol).leader_by is LeaderBy.VOTES
    name = protocol if any(row[0] == protocol for row in rows) else "quorum" if votes else "kafka"
    return tuple(int(one) for row in rows if row[0] == name for one in row[1:])
