"""A random storm (the faults of one schedule) from a seed and a list of fault kinds. Pure.

A storm is a row of episodes with calm between them, long enough to recover: a storm that keeps the
cluster down all the time tests nothing. An episode is a lone fault, two that overlap, or one of a
few scenarios that are known to lose data if a protocol is wrong: above all, the leader of a
partition fails while a follower is out of the ISR. At most two faults are in force at once, each
ends by itself, all before the storm does.

The same arguments give the same faults in every interpreter; the order of `kinds` does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from harness.formats.history import GROUP_PREFIX
from nemesis.faults.dice import Dice
from nemesis.faults.kind import KINDS, FaultKind, aliases, storm_kinds
from nemesis.formats.schedule import MAX_FAULTS, Cluster, Fault, Workload
from nemesis.links.abilities import HUB, LinkAbilities
from nemesis.ready_made import RESTART_MS
from node.formats.errors import UsageError, unknown_name

_ATTEMPTS: Final = 12
_AT_GROUPS: Final = {"leader": 0.75, "follower": 0.25, "another-follower": 0.25}


def expand(kinds: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the fault kinds that names and aliases stand for, in the order of the registry. An
    alias (a group of kinds) stands for those of its kinds that the cluster is large enough for.
    Raises UsageError for unknown names, and for a kind that this cluster is too small for."""
    drawings, groups = storm_kinds(), aliases()
    wanted: set[str] = set()
    for name in kinds:
        if name in groups:
            wanted.update(
                kind for kind in groups[name] if drawings[kind].fewest_brokers <= cluster.brokers
            )
        elif name not in drawings:
            raise UsageError(_not_drawn(name, (*drawings, *groups)))
        elif drawings[name].fewest_brokers > cluster.brokers:
            raise UsageError(
                f"fault '{name}' needs {drawings[name].fewest_brokers} brokers, "
                f"there are {cluster.brokers}"
            )
        else:
            wanted.add(name)
    return tuple(kind for kind in drawings if kind in wanted)


def _not_drawn(name: str, known: Sequence[str]) -> str:
    """Return why no storm has faults of a name: it is unknown, or only schedule files have it."""
    if name in KINDS:
        return (
            f"fault '{name}' is never drawn: {KINDS[name].drawing}; a schedule file can have it "
            f"(drawn: {', '.join(known)})"
        )
    return unknown_name("fault", name, known)


def draw(
    cluster: Cluster,
    workload: Workload,
    kinds: Sequence[str],
    seed: int,
    links: LinkAbilities = HUB,
    *,
    maps: bool = True,
    restart_ms: int = RESTART_MS,
) -> tuple[Fault, ...]:
    """Return the faults of a storm of `workload.duration_ms`, in the order of their times.

    `kinds` are names of kinds and of groups; without any there are no faults. `links` are the
    abilities of the links between the nodes: if they do not see single messages, no fault chooses
    among messages. `maps`: the nodes' stores have maps that can be full. `restart_ms`: how long a
    node that is started again needs to take part; calm waits for it. Raises UsageError for names
    that are unknown or impossible with these links and this cluster."""
    chosen = expand(kinds, cluster)
    if not chosen:
        return ()
    dice = Dice(cluster, workload, random.Random(f"storm/{seed}"), links, maps=maps)
    storm = _Storm(dice, workload.duration_ms, chosen, max(0, restart_ms - RESTART_MS))
    return tuple(sorted(storm.faults(), key=lambda fault: fault.at_ms or 0))


def at_groups(faults: Sequence[Fault], seed: str) -> tuple[Fault, ...]:
    """Return the faults, of which three quarters of those on the leader of a named partition, and
    a quarter of those on its followers, are on the leader of the group that consumes it."""
    rng, found = random.Random(seed), []
    for fault in faults:
        on = str(getattr(fault, "on", ""))
        role, _, partition = on.partition(":")
        moves = rng.random() < _AT_GROUPS.get(role, 0.0)
        to = f"leader:{GROUP_PREFIX}{partition}"
        found.append(replace(fault, on=to) if moves and partition else fault)
    return tuple(found)


class _Storm:
    """The drawing of one storm: the time reached so far, and the kinds still to be drawn."""

    def __init__(self, dice: Dice, duration: int, kinds: tuple[str, ...], slow_ms: int) -> None:
        self._dice = dice
        self._slow_ms = slow_ms
        self._rng = rng = dice.rng
        self._timings = dice.timings
        self._kinds = kinds
        drawings = {name: d for name, d in storm_kinds().items() if name in kinds}
        self._delaying = _row({name: d.delays_follower for name, d in drawings.items()})
        self._failing = _row({name: d.fails_leader for name, d in drawings.items()})
        self._restarting = _row({name: d.restarts for name, d in drawings.items()})
        self._unseen = list(kinds)
        rng.shuffle(self._unseen)
        # Some acknowledged writes before the first fault, some healing before the storm's end.
        self._start = min(1500, duration // 8)
        self._end = duration - max(1, min(1000, duration // 10))

    def faults(self) -> list[Fault]:
        """Return the faults of one episode after another, until the next one does not fit."""
        found: list[Fault] = []
        now = self._start
        while len(found) + 4 < MAX_FAULTS:
            episode = self._episode(now)
            if not episode:
                break
            found += episode
            now = max(map(self._back, episode)) + self._calm()
        return found or self._squeezed()

    def _episode(self, now: int) -> list[Fault]:
        """Return an episode that ends in time; none after some attempts: the storm is over."""
        for _ in range(_ATTEMPTS):
            unseen = list(self._unseen)
            episode = self._scenario()(now)
            if episode and max(map(_ends, episode)) <= self._end:
                return episode
            self._unseen = unseen
        return []

    def _calm(self) -> int:
        """Return how long the cluster is left alone, in ms; sometimes twice as long."""
        recovery = self._timings.session_ms + self._timings.lag_ms
        longer = 2 if self._rng.random() < 0.15 else 1
        return self._dice.between(0.6 * recovery * longer, 1.1 * recovery * longer)

    def _back(self, fault: Fault) -> int:
        """Return when the nodes of a fault are there again, in ms: a slow start takes longer."""
        ends_process = isinstance(fault, FaultKind) and fault.ends_process
        return _ends(fault) + (self._slow_ms if ends_process else 0)

    def _scenario(self) -> Callable[[int], list[Fault]]:
        # While kinds are still to come, scenarios that take several of them go first.
        unseen = len(self._unseen)
        scenarios: list[tuple[Callable[[int], list[Fault]], float]] = [
            (self._lone, 0.1 if unseen > 1 else 1.0),
            (self._pair, 4.0 if unseen else 2.0),
        ]
        if self._delaying and self._failing:
            scenarios += [(self._fail_leader, 2.0), (self._fail_two_leaders, 1.2)]
        if self._restarting:
            scenarios.append((self._restart_leader, 0.2 if unseen > 1 else 0.7))
        return self._dice.weighted(scenarios)

    def _lone(self, now: int) -> list[Fault]:
        return [self._next(self._kinds).draw(self._dice, now)]

    def _pair(self, now: int) -> list[Fault]:
        """Draw two faults, the second while the first is in force."""
        first: Fault = self._next(self._kinds).draw(self._dice, now)
        later = now + self._dice.between(0, 0.8 * (first.for_ms or 0))
        return [first, self._next(self._kinds).draw(self._dice, later)]

    def _fail_leader(self, now: int) -> list[Fault]:
        """Let a follower fall out of the ISR, then its leader fail."""
        partition = self._dice.partition()
        delaying, failing = self._next(self._delaying), self._next(self._failing)
        return self._delay_and_fail(now, partition, delaying, failing, overlap=True)

    def _fail_two_leaders(self, now: int) -> list[Fault]:
        """Let a follower leave the ISR and come back while one leader after another fails."""
        session = self._timings.session_ms
        partition, failing = self._dice.partition(), self._next(self._failing)
        delaying = self._next(self._delaying)
        delay, fails = self._delay_and_fail(now, partition, delaying, failing, overlap=False)
        fails_at = fails.at_ms or 0
        out_until = max(self._back(delay), fails_at)
        again = out_until + self._dice.between(0.3 * session, 1.2 * session)
        # The first leader must still be gone, or the second failure would find all in sync.
        lasts = again - fails_at + self._dice.between(0, session)
        leader = f"leader:{partition}"
        return [
            delay,
            failing.draw_on(self._dice, leader, fails_at, lasts),
            failing.draw_on(self._dice, leader, again, self._dice.span()),
        ]

    def _delay_and_fail(
        self,
        now: int,
        partition: str,
        delaying: type[FaultKind],
        failing: type[FaultKind],
        *,
        overlap: bool,
    ) -> list[Fault]:
        """Let a follower leave the ISR and its leader fail. With `overlap` the follower stays out
        beyond the failure, else it comes back just before."""
        lag, session = self._timings.lag_ms, self._timings.session_ms
        fail_after = self._dice.between(1.2 * lag, 1.6 * lag)
        beyond = self._dice.between(0.1 * session, session if overlap else 0.2 * session)
        lasts = self._dice.between(1.15 * session, 1.9 * session)
        return [
            delaying.draw_on_follower(self._dice, partition, now, fail_after + beyond),
            failing.draw_on(self._dice, f"leader:{partition}", now + fail_after, lasts),
        ]

    def _restart_leader(self, now: int) -> list[Fault]:
        """Draw an episode in which the leader of a partition restarts several times."""
        kind, partition = self._next(self._restarting), self._dice.partition()
        found: list[Fault] = []
        for _ in range(3):
            brief = self._dice.span(brief=True)
            fault = kind.draw_on(self._dice, f"leader:{partition}", now, brief)
            found.append(fault)
            now = self._back(fault) + self._dice.between(0.3 * self._timings.session_ms, 900)
        return found

    def _next(self, kinds: Sequence[str]) -> type[FaultKind]:
        """Return one of `kinds`: first those that this storm has not had yet."""
        kind = next((k for k in self._unseen if k in kinds), None)
        if kind is None:
            return KINDS[self._rng.choice(kinds)]
        self._unseen.remove(kind)
        return KINDS[kind]

    def _squeezed(self) -> list[Fault]:
        """Return one short fault on any one node, for a storm too short for any episode."""
        room = max(1, (self._end - self._start) // 2)
        return [self._next(self._kinds).draw_on(self._dice, "any", self._start, room)]


def _row(places: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return the kinds by their places in a row, each as often as it has places."""
    return tuple(kind for _, kind in sorted((p, kind) for kind, at in places.items() for p in at))


def _ends(fault: Fault) -> int:
    """Return the end of a drawn fault, in ms."""
    return (fault.at_ms or 0) + (fault.for_ms or 0)
