"""A real disk and a simulated one, which get the same writes, kills and damage: a stage of scripts.

The simulated disk must always have what the real one has. Batches have two records, and a command
that is refused says why."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.sim.disk import SimDisk
from node.core import batch
from node.core.log import Log
from node.formats.errors import FloodmarkError
from node.runtime import disk_damage
from node.runtime.damage import DiskDamage
from node.runtime.datadir import power_cut
from node.runtime.failing_disk import DiskFails, FailingDisk
from node.runtime.store import LmdbStorage
from tests.node.runtime.test_store_model import observed

LOG = "log-0"
Both = list[LmdbStorage | SimDisk]


class StoreStage:
    """Both disks, opened by a process; `limit` is that of the journal."""

    def __init__(self, limit: int = 0, map: int = 0, retries: int = 0) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="floodmark-store-")
        self.path, self._copy = Path(self._place.name) / "n1", Path(self._place.name) / "copy"
        self._options = {n: v for n, v in (("journal_limit", limit), ("map_bytes", map)) if v}
        self._options["retries"] = bool(retries)
        self._disk, self._sim = FailingDisk(), SimDisk()
        self._sim.retries = bool(retries)
        self._told: list[str] = []
        self._disk.tell = lambda: self._told.append(f"tells of {dict(self._disk.affected)}")
        self._slept: list[float] = []
        self._disk._sleep = self._slept.append
        self._store: LmdbStorage | None = None
        self._over = False
        self.open()

    @property
    def both(self) -> Both:
        assert self._store is not None
        return [self._store, self._sim]

    # -- processes

    def open(self, boot: str = "boot") -> str:
        """Let a new process open the disks."""
        self._store = LmdbStorage(self.path, boot, disk=self._disk, **self._options)
        self._sim.open()
        return self.holds()

    def kill(self) -> None:
        """End the process."""
        assert self._store is not None
        self._store.close()
        self._store, self._over = None, False

    def power_cut(self, keep: str) -> str:
        """Keep a share of the journal of a dead process."""
        before, after = power_cut(self.path, float(keep))
        self._sim.power_cut(float(keep))
        return "nothing is lost" if before == after else "a tail is lost"

    def second(self) -> str:
        """Let another process open the real disk."""
        return self._refused(lambda: LmdbStorage(self.path, "boot").close()) or "opened"

    def holds(self) -> str:
        """Return what a disk has, and whether it knows that nothing is lost."""
        store, sim = self.both
        found = observed(store)  # type: ignore[arg-type]
        assert found == observed(sim)  # type: ignore[arg-type]
        assert store.clean == sim.clean
        logs = [
            f"{name} has {' '.join(map(str, log)) or 'nothing'}" for name, log in found.logs.items()
        ]
        return "; ".join([*logs, "clean" if store.clean else "not clean"])

    def reads(self) -> str:
        """Return how far a log of the disk can be used."""
        log = Log(LOG, self.both[0], durable=True)
        return f"up to {log.leo}" + (f", damage at {log.damage.offset}" if log.damage else "")

    # -- writes

    def fill(self, first: int, *, deferred: int = 0, times: int = 1) -> None:
        """Write four batches and a high watermark so many times, one turn each."""
        for one in self.both:
            log = Log(LOG, one, durable=not deferred)
            for number in range(first, first + 4 * times):
                log.append_as_leader(batch.view(batch.build(2, b"%d of many" % number)), 1)
                self._commit(one)
                if number % 4 == 3:
                    one.put(f"hw/{LOG}", (2 * number + 2).to_bytes(8, "big"), durable=not deferred)
                    self._commit(one)

    def _commit(self, one: LmdbStorage | SimDisk) -> None:
        one.commit()
        journal = (self.path / "journal").stat().st_size
        assert journal <= self._options.get("journal_limit", journal)

    def append(self, *bases: int, deferred: int = 0, log: str = LOG, size: int = 7) -> None:
        """Write batches of so many bytes."""
        for base in bases:
            data = batch.stamp(batch.build(2, b"x" * size), base, 1)
            for one in self.both:
                one.append(log, base, base.to_bytes(8, "big"), data, durable=not deferred)

    def put(self, key: str, value: Any, *, deferred: int = 0) -> None:
        for one in self.both:
            one.put(key, str(value).encode(), durable=not deferred)

    def truncate(self, offset: int, *, deferred: int = 0) -> None:
        """Remove the end of the log."""
        for one in self.both:
            one.truncate(LOG, offset, durable=not deferred)

    def commit(self) -> list[str]:
        """End a turn; return what the process reported of the disk, and how long it waited."""
        # Once refused, a store refuses for ever, and a simulated process is dead.
        refused = [self._refused(one.commit) for one in self.both[: 1 if self._over else 2]]
        assert all(map(bool, refused)) or not any(refused), refused
        self._over = any(refused)
        slept = [f"waits {seconds} s" for seconds in self._slept]
        told, self._told = self._told, []
        self._slept.clear()
        return [*filter(None, refused[:1]), *slept, *told]

    def flush(self) -> None:
        """Sync what is deferred."""
        for one in self.both:
            one.flush()

    # -- damage

    def fail(self, what: str, *, written: int = 0, delay_ms: int = 0) -> None:
        self._disk.affected.clear()
        fault = DiskFails(what, delay_ms, bool(written))  # type: ignore[arg-type]
        self._disk.in_force = {7: fault}
        self._sim.add_fault(7, fault)

    def work(self) -> str:
        """Let the disks work again; return how many writes were affected."""
        self._disk.in_force = {}
        affected = self._sim.remove_fault(7)
        assert affected == sum(self._disk.affected.values())
        return f"{affected} writes affected"

    def flip(self, part: str, which: str, bit: str, key: str = "") -> str:
        """Flip a bit of a dead process's disk."""
        return self._damaged(DiskDamage("flip", part, float(which), float(bit), key))  # type: ignore[arg-type]

    def tear(self, which: str, kept: str) -> str:
        """Leave the last batch half written."""
        return self._damaged(DiskDamage("tear", which=float(which), bit=float(kept)))

    def empty(self) -> str:
        done = disk_damage.damage(self.path, DiskDamage("empty"))
        assert done == self._sim.damage(DiskDamage("empty"))
        return done

    def copy(self) -> None:
        """Copy the disk while its process runs."""
        assert self._store is not None
        self._store.copy(self._copy)
        self._sim.copy(1)

    def restore(self) -> str:
        """Let a dead process's disk be as the copy."""
        gone = disk_damage.restore(self.path, self._copy)
        assert gone == self._sim.restore(1)
        return f"{gone} batches are gone"

    def get(self, key: str) -> str:
        """Read a small value."""
        real, simulated = (self._refused(lambda o=one: o.get(key)) for one in self.both)  # type: ignore[misc]
        assert real == simulated
        return real or "sound"

    def _damaged(self, damage: DiskDamage) -> str:
        if why := self._refused(lambda: disk_damage.damage(self.path, damage)):
            return why
        return self._sim.damage(damage)

    def _refused(self, act: Callable[[], object]) -> str:
        """Return why something cannot be done, "" if it was."""
        try:
            act()
        except FloodmarkError as error:
            return f"refused: {str(error).replace(str(self.path), 'n1')}"
        return ""
