"""The generators of schedules for the simulated world, each by itself or mixed. Pure.

A mixed search alternates between scenarios and the grammar, since each finds what the other does
not. A quarter of its schedules are variations of a corpus: schedules that few others are like."""

from __future__ import annotations

import functools
import random
from typing import Final, Literal, NamedTuple

import msgspec

from harness.search.draw import staying
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.corpus import CORPUS
from harness.search.draw.generator import GENERATOR_VERSION
from harness.search.draw.generator import draw_schedule as draw_scenarios
from harness.search.draw.variation import vary
from harness.search.grammar.phrases import GRAMMAR_VERSION
from harness.search.grammar.phrases import draw_schedule as compose
from harness.systems.floodmark.system import SYSTEM
from nemesis.formats.schedule import Schedule
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of

Engine = Literal["mixed", "scenarios", "grammar"]
"""The generator that draws the schedules of a simulated search."""
MIXTURE_VERSION: Final = 3001
"""The version of the mixture; under another one a seed draws another schedule."""
CORPUS_SEED: Final = 1000
"""The seed whose schedules the numbers in the corpus name."""
_TURNS: Final = ("scenarios", "varied", "scenarios", "grammar") * 5
_STAYS: Final = 7
"""The place among the turns that failures that stay have."""


class Mixture(NamedTuple):
    """The schedules of one protocol with `bugs` on. They may have disk faults of the kinds
    `faults`."""

    protocol: str
    bugs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    def draw(self, engine: Engine, seed: int, number: int) -> Schedule:
        """Draw the schedule of this number, independently of all others."""
        rng = random.Random(f"search/{seed}/{number}")
        if engine != "mixed":
            return self._plain(engine, rng)
        turn = number % len(_TURNS)
        if turn == _STAYS:
            return self._staying(rng)
        return self._varied(rng) if _TURNS[turn] == "varied" else self._plain(_TURNS[turn], rng)

    def _plain(self, engine: str, rng: random.Random) -> Schedule:
        if engine == "grammar":
            return compose(rng, *self)
        return draw_scenarios(RandomChoices(rng), *self)

    def _varied(self, rng: random.Random) -> Schedule:
        """Vary a schedule of the corpus, with faults and options of another drawn one."""
        engine, number = rng.choice(corpus(self.protocol))
        base = self._plain(engine, random.Random(f"search/{CORPUS_SEED}/{number}"))
        return vary(rng, base, self._plain(rng.choice(_TURNS), rng))

    def _staying(self, rng: random.Random) -> Schedule:
        drawn = self._plain("scenarios", rng)
        cluster = staying.fit(rng, drawn.cluster)
        fitting = msgspec.structs.replace(drawn, cluster=cluster)
        return staying.stays(rng, fitting, SYSTEM.limits(cluster).recovery_ms)


def version_of(engine: Engine) -> int:
    """Return the version of a generator, which all search results name."""
    alone = {"scenarios": GENERATOR_VERSION, "grammar": GRAMMAR_VERSION}
    return alone.get(engine, MIXTURE_VERSION + GENERATOR_VERSION + GRAMMAR_VERSION)


@functools.cache
def corpus(protocol: str) -> tuple[tuple[str, int], ...]:
    """Return the schedules of the corpus for a protocol, by generator and number; those of a
    protocol that elects alike if it has none of its own."""
    rows = [line.split() for line in CORPUS.splitlines() if line]
    votes = protocol_of(protocol).leader_by is LeaderBy.VOTES
    name = protocol if any(row[0] == protocol for row in rows) else "quorum" if votes else "kafka"
    return tuple((row[1], int(one)) for row in rows if row[0] == name for one in row[2:])
