"""The storms of a search in which the cluster itself changes: members, replicas, versions. Pure.

They are for systems whose adapter offers such changes, and have clusters of their own: with
replicas on some nodes only, if these can move, and with spares, if nodes can join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from harness.search.draw.families import FOLLOWER, LEADER, PARTITION, StormDice
from nemesis.faults import Cut, Join, Kill, Leave, Operate, Pause, Reassign, Replace, Upgrade
from nemesis.faults.admin import MORE, MOVE
from nemesis.faults.membership import CHANGES, SPARES
from nemesis.formats.schedule import Cluster, Fault

CHANGE_KINDS: Final = (*CHANGES, "reassign", "upgrade")
BEYOND: Final = ("downgrade", "return")
"""Changes that vendors do not support: a storm has them only if they are named."""
SHARE: Final = 0.75
"""The share of storms with changes, for a system that offers some."""
SHARE_WITH_MEMBERS: Final = 0.25
"""The same if members consume, whose trouble begins with failovers too."""
FOLLOWERS: Final = f"followers:{PARTITION}"


class ChangeDice(StormDice):
    """The random choices of one such storm: `changes` and other faults of `kinds` are possible."""

    changes: tuple[str, ...] = ()

    def start(self) -> int:
        """Return the time of the first fault, in ms."""
        return self.system.change_after_ms + self.between(1000, 3000)

    def change(self, at_ms: int, among: Sequence[str] = CHANGE_KINDS) -> list[Fault]:
        """Return one change of members or replicas; none if the system offers none of them."""
        on = self.weighted(((LEADER, 1), (FOLLOWER, 2), ("any", 2), ("controller", 1)))
        by = self.weighted((("itself", 1), ("spare", 1)))
        alive, word = self.chance(0.7), self.weighted(((MOVE, 1), (MORE, 1)))
        made: dict[str, tuple[Fault, float]] = {
            "reassign": (Reassign(partition=PARTITION, replicas=word, at_ms=at_ms), 4),
            "leave": (Leave(on=on, alive=alive, at_ms=at_ms), 2),
            "replace": (Replace(on=on, by=by, alive=alive, at_ms=at_ms), 1),
            "join": (Join(at_ms=at_ms), 1),
        }
        possible = [each for kind, each in made.items() if kind in {*self.changes} & {*among}]
        return [self.weighted(possible)] if possible else []

    def fails_for_a_while(self, on: str, at_ms: int) -> list[Fault]:
        """Return a fault by which a node does not work for a part of a failover."""
        kinds = [kind for kind in (Kill, Pause) if kind.__struct_config__.tag in self.kinds]
        lasts = self.failovers(0.2, 0.9)
        return [self.rng.choice(kinds)(on=on, at_ms=at_ms, for_ms=lasts)] if kinds else []


def changed_in_a_cut(dice: ChangeDice) -> list[Fault]:
    """Draw a storm with one or two changes while some nodes are cut off from the others, which may
    be more of the replicas or more of the members."""
    at, lasts = dice.start(), dice.failovers(1.2, 2.0)
    if "cut" not in dice.kinds:
        return failed_around_a_change(dice)
    on = dice.weighted(((FOLLOWERS, 5), (LEADER, 1), ("minority", 2)))
    found: list[Fault] = [Cut(on=on, to="rest", at_ms=at, for_ms=lasts)]
    for _ in range(dice.weighted(((1, 3), (2, 1)))):
        at += dice.between(50, 0.3 * dice.failover_ms)
        found += dice.change(at)
        at += dice.system.change_ms
    return found


def joined_in_a_cut(dice: ChangeDice) -> list[Fault]:
    """Draw a storm in which nodes join on the side of a leader that all followers are cut from."""
    at, lasts = dice.start(), dice.failovers(1.6, 2.4)
    if "cut" not in dice.kinds or "join" not in dice.changes:
        return changed_in_a_cut(dice)
    found: list[Fault] = [Cut(on=FOLLOWERS, to="rest", at_ms=at, for_ms=lasts)]
    for _ in dice.cluster.spare_names():
        at += dice.between(50, 0.1 * dice.failover_ms)
        found.append(Join(at_ms=at))
        at += dice.between(0.1 * dice.system.change_ms, 0.6 * dice.system.change_ms)
    return found + dice.change(at, ("reassign",))


def failed_around_a_change(dice: ChangeDice) -> list[Fault]:
    """Draw a storm in which a node fails just before or just after a change is asked for."""
    at = dice.start()
    found: list[Fault] = []
    for _ in range(2):
        on = dice.weighted(((LEADER, 2), (FOLLOWER, 1), ("controller", 2), ("any", 1)))
        near = max(0, at + dice.between(1, 0.6 * dice.system.change_ms) - 500)
        found += [*dice.change(at), *dice.fails_for_a_while(on, near)]
        at += dice.system.change_ms + dice.failovers(0.7, 1.1)
    return found


def upgraded_in_turn(dice: ChangeDice) -> list[Fault]:
    """Draw a storm in which all nodes are upgraded, the leader last, and others fail in between."""
    at, copies = dice.start(), dice.cluster.replication_factor
    followers, others = copies - 1, dice.cluster.brokers - copies
    found: list[Fault] = []
    for on in (*([FOLLOWER] * followers), *(["any"] * others), LEADER):
        killed = dice.chance(0.35) and "kill" in dice.kinds
        found.append(Upgrade(on=on, how="kill" if killed else "stop", at_ms=at))
        step = dice.system.restart_ms + dice.failovers(0.3, 0.8)
        if dice.chance(0.5):
            victim = dice.weighted(((LEADER, 1), (FOLLOWER, 1)))
            found += dice.fails_for_a_while(victim, at + dice.between(0.3 * step, step))
            step += dice.failovers(0.6, 1.0)
        at += step
    return found


def operated(dice: ChangeDice) -> list[Fault]:
    """Draw a storm in which an operator acts around the failure of a node."""
    at = dice.start()
    action = dice.rng.choice(dice.system.operations)
    near = at + dice.failovers(0.05, 0.6)
    on = dice.weighted(((FOLLOWER, 3), (LEADER, 1), ("any", 1)))
    first = (
        dice.fails_for_a_while(LEADER, at)
        if dice.chance(0.7)
        else dice.fails_for_a_while(FOLLOWER, at)
    )
    return [*first, Operate(on=on, action=action, at_ms=near)]


CHANGE_FAMILIES: Final[dict[str, tuple[Callable[[ChangeDice], list[Fault]], float]]] = {
    "changed-in-a-cut": (changed_in_a_cut, 50),
    "joined-in-a-cut": (joined_in_a_cut, 15),
    "failed-around-a-change": (failed_around_a_change, 15),
    "upgraded-in-turn": (upgraded_in_turn, 40),
    "operated": (operated, 40),
}
"""The families by name, with their weights."""


def draw_changes(
    storm: ChangeDice, offered: tuple[str, ...], kinds: tuple[str, ...]
) -> tuple[str, tuple[Fault, ...]]:
    """Draw the faults of such a storm; return the name of its family, and the faults in order."""
    storm.changes, storm.kinds = offered, kinds
    weights = {name: weight for name, (_, weight) in CHANGE_FAMILIES.items()}
    movable = {*storm.changes} & {"reassign", "leave", "replace", "join"}
    for name in ("changed-in-a-cut", "joined-in-a-cut", "failed-around-a-change"):
        weights[name] *= bool(movable)
    weights["upgraded-in-turn"] *= "upgrade" in storm.changes and len(storm.system.servers) > 1
    weights["operated"] *= "operate" in storm.changes and bool(storm.system.operations)
    if not any(weights.values()):
        return "", ()
    name = storm.weighted(tuple(weights.items()))
    found = CHANGE_FAMILIES[name][0](storm)
    return name, tuple(sorted(found, key=lambda fault: fault.at_ms or 0))


def cluster_for(changes: Sequence[str], cluster: Cluster) -> Cluster:
    """Return the cluster of such storms, with one partition: five nodes if replicas can move among
    them, and two spares if nodes can join."""
    brokers = 5 if "reassign" in changes else cluster.brokers
    return replace(cluster, brokers=brokers, partitions=1, spares=SPARES * ("join" in changes))
