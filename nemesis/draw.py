"""A random storm from a seed and a list of fault kinds. Pure.

A storm is a row of episodes with calm between them, long enough to recover: a storm that keeps
the cluster down all the time tests nothing. An episode is a lone fault, two that overlap, or one
of a few stories that are known to lose data where protocols are wrong: above all, a leader struck
while a follower is out of the ISR. At most two faults are in force at once, each ends by itself,
all before the storm does.

The same arguments give the same faults in every interpreter; the order of `kinds` does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from nemesis.draw_faults import COMMANDS, FaultMaker, weighted
from nemesis.formats.schedule import FAULT_NAMES, MAX_FAULTS, Cluster, Fault, Workload
from node.formats.errors import UsageError

ONLY_BY_NAME: Final = ("power-cut", "stop", "elect-preferred", "reassign")
"""Kinds that no alias stands for: what a power cut may cost depends on how the brokers flush; the
others are what an operator does, and not every protocol obeys."""
_NEVER_DRAWN: Final = (
    "restart",
    "upgrade",
    "resume",
    "link",
    "break",
    "release",
    "elect-unclean",
    "set-min-isr",
)
STORM_KINDS: Final = tuple(name for name in FAULT_NAMES if name not in _NEVER_DRAWN)
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "partition": ("cut", "isolate", "bridge", "ring"),
    "all": tuple(name for name in STORM_KINDS if name not in ONLY_BY_NAME),
}
FEWEST_BROKERS: Final = {"bridge": 3, "ring": 3}

DEAFENING: Final = ("isolate", "pause", "cut", "cut", "loss", "loss", "kill")
"""Those on links stand twice: a follower that lags while the controller still hears it is the one
that a wrong election picks."""
STRIKING: Final = ("kill", "isolate", "pause")
BOUNCING: Final = ("kill", "pause")
_ATTEMPTS: Final = 12


def expand(kinds: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """The fault kinds meant by names and aliases, in the order of `STORM_KINDS`.

    Raises UsageError for unknown names, and for a kind named that this cluster is too small for.
    An alias stands for those of its kinds that the cluster is large enough for.
    """
    wanted: set[str] = set()
    for name in kinds:
        if name in ALIASES:
            wanted.update(k for k in ALIASES[name] if _large_enough(k, cluster))
        elif name not in STORM_KINDS:
            known = ", ".join((*STORM_KINDS, *ALIASES))
            raise UsageError(f"unknown fault '{name}' (known: {known})")
        elif not _large_enough(name, cluster):
            raise UsageError(
                f"fault '{name}' needs {FEWEST_BROKERS[name]} brokers, there are {cluster.brokers}"
            )
        else:
            wanted.add(name)
    return tuple(kind for kind in STORM_KINDS if kind in wanted)


def draw(
    cluster: Cluster, workload: Workload, kinds: Sequence[str], seed: int
) -> tuple[Fault, ...]:
    """The faults of a storm of `workload.duration_ms`, in the order of their times.

    `kinds` are names of `STORM_KINDS` or `ALIASES`; none gives no faults. Raises UsageError for
    names that are unknown or impossible here.
    """
    chosen = expand(kinds, cluster)
    if not chosen:
        return ()
    storm = _Storm(cluster, workload, chosen, random.Random(f"storm/{seed}"))
    return tuple(sorted(storm.faults(), key=lambda fault: fault.at_ms or 0))


def _large_enough(kind: str, cluster: Cluster) -> bool:
    return cluster.brokers >= FEWEST_BROKERS.get(kind, 1)


class _Storm:
    """The drawing of one storm: where in time it is, and which kinds are still to come."""

    def __init__(
        self, cluster: Cluster, workload: Workload, kinds: tuple[str, ...], rng: random.Random
    ) -> None:
        self._rng = rng
        self._make = FaultMaker(cluster, workload, rng)
        self._timings = cluster.timings
        self._kinds = kinds
        self._unseen = list(kinds)
        rng.shuffle(self._unseen)
        duration = workload.duration_ms
        # Some acknowledged writes before the first fault, some healing before the storm's end.
        self._start = min(1500, duration // 8)
        self._end = duration - max(1, min(1000, duration // 10))

    def faults(self) -> list[Fault]:
        """Episode after episode until the next one does not fit any more."""
        found: list[Fault] = []
        now = self._start
        while len(found) + 4 < MAX_FAULTS:
            episode = self._episode(now)
            if not episode:
                break
            found += episode
            now = max(map(_ends, episode)) + self._calm()
        return found or self._squeezed()

    def _episode(self, now: int) -> list[Fault]:
        """An episode that ends in time; none after some attempts: the storm is over."""
        for _ in range(_ATTEMPTS):
            unseen = list(self._unseen)
            episode = self._story()(now)
            if episode and max(map(_ends, episode)) <= self._end:
                return episode
            self._unseen = unseen
        return []

    def _calm(self) -> int:
        """How long the cluster is left alone, in ms; now and then a good while."""
        recovery = self._timings.session_ms + self._timings.lag_ms
        longer = 2 if self._rng.random() < 0.15 else 1
        return self._make.between(0.6 * recovery * longer, 1.1 * recovery * longer)

    def _story(self) -> Callable[[int], list[Fault]]:
        # While kinds are still to come, stories that take several of them go first.
        unseen = len(self._unseen)
        stories: list[tuple[Callable[[int], list[Fault]], float]] = [
            (self._lone, 0.1 if unseen > 1 else 1.0),
            (self._pair, 4.0 if unseen else 2.0),
        ]
        if self._of(DEAFENING) and self._of(STRIKING):
            stories += [(self._strike_the_leader, 2.0), (self._strike_twice, 1.2)]
        if self._of(BOUNCING):
            stories.append((self._bounce, 0.2 if unseen > 1 else 0.7))
        return weighted(self._rng, stories)

    def _lone(self, now: int) -> list[Fault]:
        return [self._make.fault(self._next(self._kinds), now)]

    def _pair(self, now: int) -> list[Fault]:
        """Two faults, the second while the first is in force."""
        first = self._make.fault(self._next(self._kinds), now)
        later = now + self._make.between(0, 0.8 * (first.for_ms or 0))
        return [first, self._make.fault(self._next(self._kinds), later)]

    def _strike_the_leader(self, now: int) -> list[Fault]:
        """A follower falls out of the ISR, then its leader is struck."""
        return self._lag_and_strike(now, self._make.partition(), overlap=True)

    def _strike_twice(self, now: int) -> list[Fault]:
        """A follower falls out of the ISR and comes back while one leader after another goes."""
        partition, kind = self._make.partition(), self._next(self._of(STRIKING))
        deaf, strike = self._lag_and_strike(now, partition, overlap=False, striking=kind)
        again = max(_ends(deaf), strike.at_ms or 0) + self._make.between(
            0.3 * self._timings.session_ms, 1.2 * self._timings.session_ms
        )
        # The first leader must still be gone, or the second blow would find everybody in sync.
        lasts = again - (strike.at_ms or 0) + self._make.between(0, self._timings.session_ms)
        leader = f"leader:{partition}"
        return [
            deaf,
            self._make.on(kind, leader, strike.at_ms or 0, lasts),
            self._make.on(kind, leader, again, self._make.span()),
        ]

    def _lag_and_strike(
        self, now: int, partition: str, *, overlap: bool, striking: str = ""
    ) -> list[Fault]:
        """With `overlap` the follower is out beyond the strike, else just until it."""
        deafening = self._next(self._of(DEAFENING))
        striking = striking or self._next(self._of(STRIKING))
        lag, session = self._timings.lag_ms, self._timings.session_ms
        strike_at = self._make.between(1.2 * lag, 1.6 * lag)
        beyond = self._make.between(0.1 * session, session if overlap else 0.2 * session)
        lasts = self._make.beyond_session()
        return [
            self._make.deafen(deafening, partition, now, strike_at + beyond),
            self._make.on(striking, f"leader:{partition}", now + strike_at, lasts),
        ]

    def _bounce(self, now: int) -> list[Fault]:
        """The leader of one partition goes away for a moment, again and again."""
        kind, partition = self._next(self._of(BOUNCING)), self._make.partition()
        found: list[Fault] = []
        for _ in range(3):
            fault = self._make.on(kind, f"leader:{partition}", now, self._make.span(brief=True))
            found.append(fault)
            now = _ends(fault) + self._make.between(0.3 * self._timings.session_ms, 900)
        return found

    def _of(self, some: Sequence[str]) -> tuple[str, ...]:
        """Those of `some` that this storm may use."""
        return tuple(kind for kind in some if kind in self._kinds)

    def _next(self, kinds: Sequence[str]) -> str:
        """One of `kinds`: first those that this storm has not had yet."""
        kind = next((k for k in self._unseen if k in kinds), None)
        if kind is None:
            return self._rng.choice(kinds)
        self._unseen.remove(kind)
        return kind

    def _squeezed(self) -> list[Fault]:
        """A storm too short for any episode still has one short fault on one node."""
        kind, room = self._next(self._kinds), max(1, (self._end - self._start) // 2)
        if kind == "ring":
            fault: Fault = self._make.fault(kind, self._start)
            return [_shortened(fault, room)]
        if kind in COMMANDS:
            return [self._make.command(kind, self._start)]
        return [self._make.on(kind, "any", self._start, room)]


def _ends(fault: Fault) -> int:
    """When a drawn fault ends, in ms: it has both times."""
    return (fault.at_ms or 0) + (fault.for_ms or 0)


def _shortened(fault: Fault, for_ms: int) -> Fault:
    return type(fault)(
        **{n: getattr(fault, n) for n in fault.__struct_fields__} | {"for_ms": for_ms}
    )
