"""Faults of disks: syncs that fail, take long or lie, full disks, reads that fail, and disks that
lose or damage what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Consequence, Drawing, Loss, Site
from nemesis.faults.lasting import LastingFault, start_if_ended
from nemesis.faults.process_fault import ProcessFault
from nemesis.faults.words import target
from nemesis.world import DiskCopy
from node.formats.errors import FloodmarkError
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

_COLOUR: Final = "#6b5b95"
DISK_GROUP: Final = "disk"
"""Stands for the kinds that a cluster survives on one broker."""
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
DelayMs = Annotated[int, msgspec.Meta(ge=1, le=60_000)]


class _FailingDisk(LastingFault, frozen=True, kw_only=True):
    """A fault that lets the disk of the nodes `on` fail until the heal, which also starts nodes
    that have stopped because of it.

    Its effect is the number of writes that it affected."""

    on: str

    colour = _COLOUR
    on_disks = True
    pattern = "stripes"
    on_processes = True
    counted = "writes"
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE})

    def bring_back(self, site: Site, node: str) -> None:
        start_if_ended(site, node)


class FsyncError(_FailingDisk, frozen=True, kw_only=True, tag="fsync-error"):
    """Each sync fails until the heal. With `written` the data of the failed sync is on the disk
    nevertheless."""

    written: bool = False

    letter = "f"
    plain = (("written", False),)
    plainer_kind = "kill"
    drawing = Drawing(targets=ONE_NODE, aliases=(DISK_GROUP,), fails_leader=(3,))

    def lasting(self) -> DiskFails:
        return DiskFails("error", written=self.written)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        return {"written": dice.chance(0.3)}

    def words(self) -> str:
        then = ", though the disk has what they write" if self.written else ""
        return f"Let syncs of {target(self.on)} fail{then}"


class SlowFsync(_FailingDisk, frozen=True, kw_only=True, tag="slow-fsync"):
    """Each sync takes `delay_ms` longer until the heal."""

    delay_ms: DelayMs

    letter = "s"
    plainer_kind = "pause"
    sentence = "Let each sync of {on} take {delay_ms} ms longer"
    drawing = Drawing(targets=ONE_NODE, aliases=(DISK_GROUP,), delays_follower=(8,))

    def lasting(self) -> DiskFails:
        return DiskFails("slow", delay_ms=self.delay_ms)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw a delay from a tenth of the session to more than all of it."""
        session_ms = dice.timings.session_ms
        return {"delay_ms": dice.between(0.1 * session_ms, 1.3 * session_ms)}


class DiskFull(_FailingDisk, frozen=True, kw_only=True, tag="disk-full"):
    """No more data fits into the file system, or (`limit` "map") into the map of the store, until
    the heal."""

    limit: Literal["file-system", "map"] = "file-system"

    letter = "d"
    plain = (("limit", "file-system"),)
    plainer_kind = "kill"
    drawing = Drawing(targets=ONE_NODE, aliases=(DISK_GROUP,), fails_leader=(4,))

    def lasting(self) -> DiskFails:
        return DiskFails("full-map" if self.limit == "map" else "full")

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw which of the two is full; the map only if the store has one."""
        of_map = dice.chance(0.5) and dice.maps
        return {"limit": "map" if of_map else "file-system"}

    def words(self) -> str:
        what = "the disk" if self.limit == "file-system" else "the map of the store"
        return f"Let {what} of {target(self.on)} be full"


class ReadError(_FailingDisk, frozen=True, kw_only=True, tag="read-error"):
    """Reads from the disk fail until the heal, except of data that is in memory."""

    letter = "r"
    plainer_kind = "kill"
    simulated = False
    sentence = "Let reads from the disk of {on} fail"
    drawing = Drawing(targets=ONE_NODE, aliases=(DISK_GROUP,))

    def lasting(self) -> DiskFails:
        return DiskFails("unreadable")


class LyingFsync(_FailingDisk, frozen=True, kw_only=True, tag="lying-fsync"):
    """Syncs are confirmed and not done. Each power cut meanwhile takes everything that was written
    after the injection, and the heal is such a power cut."""

    letter = "l"
    plainer_kind = "old-copy"
    sentence = "Let the disk of {on} confirm syncs that it does not do, and cut its power then"
    ends_process = True
    loss = "unnoticed"
    drawing = Drawing(targets=ONE_NODE[:5], aliases=())

    def lasting(self) -> DiskFails:
        return DiskFails("lying")

    def remove(self, site: Site, node: str, number: int) -> Any:
        """Cut the power, and let the disk sync again; return how many writes were lost."""
        if site.world.is_up(node):
            site.processes.power_cut(site.number, node, lambda: 1.0)
        else:
            site.world.power_cut(node, 1.0)
        return super().remove(site, node, number)


class OldCopy(LastingFault, frozen=True, kw_only=True, tag="old-copy"):
    """The disk is copied; at the heal the node is killed, its disk is replaced by that copy, and
    the node is started."""

    on: str

    letter = "o"
    colour = _COLOUR
    on_disks = True
    pattern = "dots"
    counted = "writes"
    sentence = "Copy the disk of {on}, and restore that copy later"
    on_processes = True
    ends_process = True
    loss = "unnoticed"
    drawing = Drawing(targets=ONE_NODE[:5], aliases=())

    def lasting(self) -> DiskCopy:
        return DiskCopy()

    def remove(self, site: Site, node: str, number: int) -> Any:
        """Kill a node and restore the copy of its disk; return how many writes it lost by that."""
        if site.world.is_up(node):
            site.processes.kill(site.number, node)
        return super().remove(site, node, number)

    def bring_back(self, site: Site, node: str) -> None:
        site.processes.start_again(site.number, node)


class _Damage(ProcessFault, frozen=True, kw_only=True):
    """A fault that kills a node and damages the data on its disk; the node is started again as
    after a kill."""

    colour = _COLOUR
    on_disks = True
    plainer_kind = "kill"
    pattern = "bars"
    ends_process = True
    loss = "noticed"
    drawing = Drawing(targets=ONE_NODE, aliases=(DISK_GROUP,))

    @classmethod
    def draw_on(cls, dice: Dice, on: str, at_ms: int, for_ms: int) -> Self:
        """Draw the fault, always on the same broker of a storm: a cluster survives damage to one
        copy."""
        return super().draw_on(dice, dice.victim, at_ms, for_ms)

    def damage(self, site: Site) -> DiskDamage:
        raise NotImplementedError

    def act(self, site: Site, node: str) -> str:
        ran = site.world.is_up(node)
        if ran:
            site.processes.kill(site.number, node)
        try:
            return f"{node}: {site.world.damage_disk(node, self.damage(site))}"
        except FloodmarkError:
            if ran:
                site.processes.start_again(site.number, node)
            raise


class TornWrite(_Damage, frozen=True, kw_only=True, tag="torn-write"):
    """The node is killed, and only the first `keep_percent` (None: drawn) of the last synced batch
    of a log remain; the rest reads as zeros."""

    keep_percent: Percent | None = None

    letter = "t"
    plain = (("keep_percent", 0),)
    sentence = "Kill {on} and tear the last write to its disk"

    def damage(self, site: Site) -> DiskDamage:
        which, kept = site.rng.random(), site.rng.random()
        kept = kept if self.keep_percent is None else self.keep_percent / 100
        return DiskDamage("tear", which=which, bit=kept)


class BitFlip(_Damage, frozen=True, kw_only=True, tag="bit-flip"):
    """The node is killed, and one bit on its disk is flipped: in a `part` of a batch (payload,
    header or prefix hash; None: drawn), or in the small value stored under `key` ("": a drawn one).

    With `files`, a pattern for file names, it is a bit of one of those files instead, `within` two
    offsets if given."""

    part: Literal["payload", "header", "chain", "value"] | None = None
    key: str = ""
    files: str = ""
    within: tuple[int, int] | None = None

    letter = "b"

    def may_lose(self) -> Loss:
        """Return the loss that the disk may cause. It counts as unnoticed for a value: a voter that
        lost its vote never votes again."""
        return "unnoticed" if self.part == "value" else "noticed"

    def damage(self, site: Site) -> DiskDamage:
        drawn: Literal["payload", "header", "chain"] = site.rng.choice(_PARTS)
        which, bit = site.rng.random(), site.rng.random()
        damage = DiskDamage("flip", part=self.part or drawn, which=which, bit=bit, key=self.key)
        return damage._replace(files=self.files, within=self.within)

    def plainer(self) -> Iterator[BitFlip]:
        if self.part != "payload" and not self.files:
            yield msgspec.structs.replace(self, part="payload", key="")

    def words(self) -> str:
        what = f"the {self.part} of a stored batch" if self.part else "a stored batch"
        if self.files:
            where = "" if self.within is None else " between bytes {} and {}".format(*self.within)
            return f"Kill {target(self.on)} and flip a bit in {self.files}{where}"
        if self.part == "value":
            what = f"the stored value '{self.key}'" if self.key else "a stored value"
        return f"Kill {target(self.on)} and flip a bit in {what}"


class DiskEmptied(_Damage, frozen=True, kw_only=True, tag="disk-emptied"):
    """The node is killed, and everything on its disk is removed."""

    letter = "e"
    sentence = "Kill {on} and empty its disk"

    def damage(self, site: Site) -> DiskDamage:
        return DiskDamage("empty")


_PARTS: Final[tuple[Literal["payload", "header", "chain"], ...]] = ("payload", "header", "chain")
