"""The base class of all kinds of faults, and their registry.

The class of a fault defines its fields in the schedule file and what can be wrong with them, which
nodes a role may stand for, how the fault is injected and healed, how a random storm draws it, which
plainer forms a shrinker may try instead, how it is described, and how a page draws it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Literal, Self

from msgspec.structs import replace

from nemesis.faults.dice import Dice, Spot
from nemesis.faults.words import target
from nemesis.formats import fault as formats
from nemesis.formats.cluster_spec import Cluster
from nemesis.formats.fault import Fault
from nemesis.processes import Processes
from nemesis.view import ClusterView
from nemesis.world import World


class Consequence(Enum):
    """An effect of a fault, for which the next fault of a composed schedule may wait."""

    ELECTION = "another replica leads"
    ISR_CHANGE = "a replica leaves the ISR, or enters it"
    RESTART = "a process starts again"


class Requirement(Enum):
    """A property of the cluster without which a fault of a kind has little effect."""

    SPARE_BROKER = "a broker without a replica"
    UNSYNCED = "writes that are not synced"
    VOTERS = "several voters"


Pattern = Literal["plain", "bars", "stripes", "dots"]
Loss = Literal["", "unsynced", "noticed", "unnoticed"]
"""What disks may lose by a fault: nothing; what was not synced; something, and the node notices;
something, and nothing shows it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The circumstances in which a fault is injected or healed.

    `number` is the number of the fault in its schedule, `nodes` are those that its `on` stands for
    at the moment, `others` resolves its `to`, `undo` heals the fault in force with a given name and
    returns its nodes. `rng` is the fault's own generator."""

    number: int
    nodes: tuple[str, ...]
    world: World
    view: ClusterView
    cluster: Cluster
    clients: tuple[str, ...]
    processes: Processes
    rng: random.Random
    others: Callable[[str], tuple[str, ...]]
    undo: Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Injected:
    """The result of injecting a fault: its nodes and links, and, by the numbers that the world gave
    them, the nodes where it is `held` in force ("": a rule of links). `healed` are the effects at
    places that were healed, `standing` the nodes that have stopped at a breakpoint. `effect` is the
    effect if it was known at once. `change` is the number of a change of the cluster that is under
    way."""

    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    held: dict[int, str] = field(default_factory=dict)
    healed: list[Any] = field(default_factory=list)
    standing: list[str] = field(default_factory=list)
    detail: str = ""
    effect: Effect | None = None
    change: int | None = None


@dataclass(frozen=True, kw_only=True)
class Healed:
    """The result of a heal. `failed` are sentences about effects that could not be undone; `effect`
    counts what the fault did while it was in force."""

    nodes: tuple[str, ...] = ()
    detail: str = ""
    failed: tuple[str, ...] = ()
    effect: Effect | None = None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of a fault on messages and processes: counts by field name of `faults.jsonl`."""

    nodes: tuple[str, ...]
    counts: Mapping[str, int]
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The way in which random storms draw a kind.

    `targets` are values of `on` and how often each is drawn (":p" stands for a drawn partition);
    empty: the kind has no target. `aliases` are the groups that include the kind.
    `delays_follower`, `fails_leader` and `restarts` are its places in the lists from which the
    scenarios of a storm choose; a kind with two places is drawn twice as often. A seed draws by
    place, so a new kind goes to the end of a list."""

    targets: tuple[tuple[str, float], ...] = ()
    aliases: tuple[str, ...] = ("all",)
    fewest_brokers: int = 1
    delays_follower: tuple[int, ...] = ()
    fails_leader: tuple[int, ...] = ()
    restarts: tuple[int, ...] = ()


class FaultKind(Fault, frozen=True, kw_only=True):
    """The base of all faults: a class for each kind.

    A class has the fields of the fault in the schedule file, the class attributes below, and the
    methods. The defaults are those of a fault on the nodes `on` that lasts."""

    letter: ClassVar[str]
    """Drawn on the bar of a fault, because colour alone must not carry the meaning."""
    colour: ClassVar[str]
    """Of its bar, as CSS writes it; a page mixes it with its background, light or dark."""
    pattern: ClassVar[Pattern] = "plain"
    sentence: ClassVar[str] = ""
    """What the fault does, without its times, with its fields in braces."""
    on_processes: ClassVar[bool] = False
    on_links: ClassVar[bool] = False
    on_disks: ClassVar[bool] = False
    ends_process: ClassVar[bool] = False
    """Whether its nodes are down until they are started again."""
    loss: ClassVar[Loss] = ""
    plain: ClassVar[tuple[tuple[str, object], ...]] = ()
    """Fields with their plainest values, for a shrinker."""
    plainer_kind: ClassVar[str] = ""
    """A kind that may do as well on the same nodes, and is tried instead by a shrinker."""
    of_turns: ClassVar[bool] = False
    """True if it stands inside a turn, so that only our own brokers can have it."""
    causes: ClassVar[tuple[str, ...]] = ()
    """Names of trace events that the fault itself brings about, for other faults to wait for."""
    bar_names_nodes: ClassVar[bool] = False
    """Whether the bar of a fault on links names its nodes instead of all the links."""
    drawing: ClassVar[Drawing | str]
    """How storms draw it, or else why they never do."""
    needs: ClassVar[frozenset[Requirement]] = frozenset()
    consequences: ClassVar[frozenset[Consequence]] = frozenset()
    by_controller: ClassVar[bool] = False
    """Whether only a controller can carry it out, so that replicas that vote refuse it."""
    simulated: ClassVar[bool] = True
    """Whether the simulated world can carry it out."""

    @property
    def has_targets(self) -> bool:
        """Whether it acts on the nodes that its `on` stands for."""
        return "on" in self.__struct_fields__

    @property
    def place(self) -> str:
        """Its target, or else the partition that it is about; "" if neither."""
        return str(getattr(self, "on", getattr(self, "partition", "")))

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return those of `nodes` for which a role in `on` may stand: the fault can act on them."""
        return tuple(node for node in nodes if world.is_up(node))

    def inject(self, site: Site) -> Injected:
        """Carry the fault out. Raises FloodmarkError if it has no effect at all."""
        raise NotImplementedError

    def stopped(self, node: str, site: Site) -> None:
        """Act on a node that has stopped at a breakpoint of this fault. Raises FloodmarkError."""

    def release(self, injected: Injected, number: int, site: Site, notes: list[str]) -> None:
        """Undo the fault at one place, while it stays in force at others; add a note to `notes` if
        nothing of it was left."""
        raise NotImplementedError

    def heal(self, injected: Injected, site: Site) -> Healed:
        """Undo the fault, as far as it is still in force."""
        raise NotImplementedError

    @classmethod
    def draw(cls, dice: Dice, at_ms: int) -> Self:
        """Draw a fault of this kind at `at_ms`, with its target and length."""
        targets = cls._drawing().targets
        on = dice.target(targets) if targets else ""
        # When most of the cluster is gone nothing is acknowledged: keep that short.
        for_ms = dice.span(brief=on in WIDE)
        on = f"{on[:-1]}{dice.partition()}" if on.endswith(":p") else on
        return cls.draw_on(dice, on, at_ms, for_ms)

    @classmethod
    def draw_on(cls, dice: Dice, on: str, at_ms: int, for_ms: int) -> Self:
        """Draw a fault of this kind with a given target and length, if the kind has them."""
        make: Callable[..., Self] = cls
        given: dict[str, Any] = {"on": on} if "on" in cls.__struct_fields__ else {}
        if "partition" in cls.__struct_fields__:
            given["partition"] = dice.partition()
        given |= {"at_ms": at_ms, "for_ms": for_ms if cls.lasts else None}
        return make(**given, **cls.draw_fields(dice, on))

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw the fields of a fault on `on` that only this kind has."""
        return {}

    @classmethod
    def draw_on_follower(cls, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Self:
        """Draw a fault of this kind by which a follower of the partition falls behind."""
        return cls.draw_on(dice, f"follower:{partition}", at_ms, for_ms)

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw a fault of this kind for a place in a composed schedule, which sets its moment."""
        fields: tuple[str, ...] = cls.__struct_fields__
        drawn: Fault = cls.draw_on(spot.dice, spot.on, 0, spot.for_ms)
        own: dict[str, object] = {}
        if "on" in fields and spot.dice.chance(0.3):
            own["on"] = spot.on  # not the one broker whose disk is damaged
        if "partition" in fields:
            own["partition"] = spot.partition
        if "to" in fields and spot.dice.chance(0.5):
            own["to"] = spot.other
        return replace(drawn, **own)

    @classmethod
    def _drawing(cls) -> Drawing:
        assert isinstance(cls.drawing, Drawing), cls.drawing
        return cls.drawing

    def as_plainer_kind(self) -> Iterator[Fault]:
        """Yield faults of other, plainer kinds, for a shrinker to try in place of this one."""
        if self.plainer_kind:
            make: Callable[..., Fault] = KINDS[self.plainer_kind]
            fields = ("on", "at_ms", "after", "for_ms")
            yield make(**{field: getattr(self, field) for field in fields})

    def plainer(self) -> Iterator[Self]:
        """Yield the same fault with one of its own fields plainer, for a shrinker to try in its
        spot. The times stay as they are."""
        for name, value in self.plain:
            if getattr(self, name, value) != value:
                yield replace(self, **{name: value})

    def may_lose(self) -> Loss:
        """Return the loss that this fault may cause on disks."""
        return self.loss

    def words(self) -> str:
        """Return the fault as a sentence without its times: "Kill the leader of log-0"."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        nodes = {name: target(fields[name]) for name in ("on", "to") if name in fields}
        return (self.sentence or f"{self.what.capitalize()} {{on}}").format(**fields | nodes)


WIDE: Final = ("majority", "all", "voters", "isr:p", "followers:p")
"""Targets that are most of the cluster."""

# Targets that are one node, and how often each is drawn; ":p" stands for a drawn partition.
ONE_NODE: Final = (
    ("leader:p", 4.0),
    ("leader", 2.0),
    ("follower:p", 2.0),
    ("follower", 1.0),
    ("lagging", 1.0),
    ("any", 2.0),
)

KINDS: Final[dict[str, type[FaultKind]]] = {}
"""All kinds by name, in the order of registration."""


def register(kind: type[FaultKind]) -> None:
    """Allow faults of this kind in schedules from now on."""
    name = formats.register(kind)
    KINDS[name] = kind


def kind_of(fault: Fault) -> FaultKind:
    """Return the fault as a `FaultKind`, which every fault of a registered kind is."""
    assert isinstance(fault, FaultKind), f"{fault.what} is not registered"
    return fault


def storm_kinds() -> dict[str, Drawing]:
    """Return how storms draw each kind that they draw, by name."""
    return {name: kind.drawing for name, kind in KINDS.items() if isinstance(kind.drawing, Drawing)}


def aliases() -> dict[str, tuple[str, ...]]:
    """Return the groups of kinds by name, those with the fewest kinds first."""
    found: dict[str, tuple[str, ...]] = {}
    for name, drawing in storm_kinds().items():
        for alias in drawing.aliases:
            found[alias] = (*found.get(alias, ()), name)
    return dict(sorted(found.items(), key=lambda group: len(group[1])))
