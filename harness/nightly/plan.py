"""What a night does: its shares of time, its seeds, and which piece comes next. Pure.

Whatever has had least of its share so far comes next, so a night that is stopped at any moment has
done some of everything, and one that goes on needs to know no more than what is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.nightly_run import Night
from harness.search.known_bugs import broken_by, correct_protocols, search_targets
from nemesis.faults import Isolate, aliases
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core import protocol as protocols
from node.formats.errors import UsageError

SHARES: Final = {"search": 50, "museum": 15, "storm": 22, "replay": 8, "twice": 5}
"""Percent of the budget. A share with nothing left to do is divided among the others."""
SEEDS_A_NIGHT: Final = 1_000_000
ENGINES: Final = ("random", "guided")
CANARY_BUG: Final = "ack-before-isr"
FAULT_SETS: Final = (
    *aliases(),
    "kill",
    "pause",
    "delay",
    "loss",
    "kill,pause,partition",
    "power-cut",
)
"""What the storms of a night are drawn from; with power cuts, brokers flush now and then only, so
protocols whose word is about flush=sync are spared them."""
_BUDGET: Final = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_UNIT_S: Final = {"h": 3600, "m": 60, "s": 1}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a night. `piece_schedules` ends a stretch of search by count (0: by time
    alone). So many findings get `pages`. `storm_s` is the length of a storm, without its start and
    end. `kept_of_a_kind` is how many real runs of one class stay as folders, over all nights."""

    store: Path
    budget_s: float
    cores: int = 1
    number: int = 0
    piece_s: float = 20.0
    piece_schedules: int = 0
    shrink_tries: int = 400
    pages: int = 24
    museum_s: float = 60.0
    twice_runs: int = 12
    storm_s: float = 10.0
    real: bool = True
    least_free_bytes: int = 512 << 20
    judge_every: int = 40
    kept_of_a_kind: int = 5


class PlannedStorm(msgspec.Struct, frozen=True, kw_only=True):
    """One real storm to be drawn: a cell of the matrix, and a seed."""

    protocol: str
    kinds: str
    seed: int

    @property
    def key(self) -> str:
        """Names the piece in the journal."""
        return f"storm/{self.protocol}/{self.kinds}/{self.seed}"

    @property
    def name(self) -> str:
        """What the run is called in the store."""
        return f"night-{self.protocol}-{self.kinds.replace(',', '-')}"


def seconds_of(text: str) -> float:
    """`20m`, `8h`, `90s` or `1h30m` in seconds. Raises UsageError."""
    parts = _BUDGET.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"--budget is '{text}', but is written like 90s, 20m, 8h or 1h30m")
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if not seconds:
        raise UsageError("--budget is nothing, but a night needs some time")
    return seconds


def suited(settings: Settings) -> Settings:
    """The same with pieces short enough for everything to have its turn in a short night."""
    part_s = settings.budget_s / 100
    return msgspec.structs.replace(
        settings,
        piece_s=min(settings.piece_s, max(2.0, 2 * part_s)),
        museum_s=min(settings.museum_s, max(3.0, 3 * part_s)),
    )


def seed_of(number: int) -> int:
    """The first seed of a night; the next `SEEDS_A_NIGHT` belong to it too."""
    return number * SEEDS_A_NIGHT


def next_share(spent: Mapping[str, float], idle: Iterable[str]) -> str | None:
    """The share that has had least so far for its size; None when all are `idle`."""
    left = [name for name in SHARES if name not in set(idle)]
    return min(left, key=lambda name: spent.get(name, 0.0) / SHARES[name], default=None)


def numbered(prefix: str, done: set[str], wanted: int) -> list[int]:
    """The next few numbers of pieces that are not done: those that were lost come first."""
    found: list[int] = []
    number = 0
    while len(found) < wanted:
        if f"{prefix}/{number}" not in done:
            found.append(number)
        number += 1
    return found


def least_hit(
    past: Sequence[Night], tonight: Mapping[tuple[str, str], int], seed: int
) -> PlannedStorm:
    """The next storm: of the cell of the matrix that was hit least in all nights.

    Among equals the protocols that are expected to hold come first, then the order of the registry.
    """
    counts = dict(tonight)
    for night in past:
        for cell in night.storms:
            key = (cell.protocol, cell.kinds)
            counts[key] = counts.get(key, 0) + cell.runs
    held = correct_protocols()
    others = [p.name for p in protocols.REGISTRY.values() if broken_by(p)]
    cells = [
        (name, kinds)
        for group in (held, others)
        for kinds in FAULT_SETS
        for name in group
        if not ("power-cut" in kinds and protocols.protocol(name).clean_only)
    ]
    protocol, kinds = min(cells, key=lambda cell: counts.get(cell, 0))
    return PlannedStorm(protocol=protocol, kinds=kinds, seed=seed)


def expected() -> dict[str, dict[str, str]]:
    """By protocol, what is known of each property."""
    return {p.name: dict(p.expected) for p in protocols.REGISTRY.values()}


def is_expected(protocol: str, properties: Iterable[str], bugs: Sequence[str] = ()) -> bool:
    """Whether a failure is no news: a bug is on, or the protocol is known to break all of these.

    Liveness and safety are told apart, so that a protocol that may lose data must still end well.
    """
    known = expected().get(protocol, {})
    broken = list(properties)
    return bool(bugs) or (bool(broken) and all(known.get(p) == "violable" for p in broken))


def canary() -> Schedule:
    """A storm that must fail: leaders that acknowledge too soon are cut off one after another."""
    faults = tuple(
        Isolate(on=f"leader:log-{number}", at_ms=1500 + 3500 * number, for_ms=2500)
        for number in range(2)
    )
    return Schedule(
        name="canary",
        cluster=Cluster(partitions=2, bugs=(CANARY_BUG,)),
        workload=Workload(seed=1, clients=4, consumers=2, duration_ms=8500),
        faults=faults,
    )


def exhibit_order(past: Sequence[Night], tonight: Iterable[str]) -> list[str]:
    """The codes of the museum, those first that were hunted least."""
    counts: dict[str, int] = {}
    for code in [*(hunt.code for night in past for hunt in night.museum), *tonight]:
        counts[code] = counts.get(code, 0) + 1
    return sorted((e.code for e in search_targets()), key=lambda code: counts.get(code, 0))
