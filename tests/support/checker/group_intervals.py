"""Random histories of a group whose coordinator keeps its promise and lets members move one by one
(KIP-848): member epochs, partitions handed over one at a time, commits under an older epoch of the
same owner (KIP-1251) or not, late copies of requests, zombies, and a deposed coordinator that still
answers fetches."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.formats.history import Delivered, DeliveredRun, GroupPosition, Op
from tests.support.checker.group_histories import History

PARTITIONS: Final = ("log-0", "log-1")
ACTIONS: Final = {
    "send": 4,
    "join": 0.6,
    "go": 0.3,
    "beat": 4,
    "poll": 3,
    "commit": 5,
    "depose": 0.1,
}


class State(NamedTuple):
    """The knowledge of a coordinator: the epochs of members, and by partition its owner, with the
    epoch in which it got the partition, and the position."""

    members: Mapping[str, int]
    owned: Mapping[str, tuple[str, int]]
    positions: Mapping[str, int]

    def accepts(self, member: str, epoch: int, partition: str, *, interval: bool) -> bool:
        """Return whether it takes a commit, or answers a fetch, of a member at an epoch."""
        owner, since = self.owned.get(partition, ("", 0))
        current = self.members.get(member, -1)
        lowest = since if interval else current
        return owner == member and lowest <= epoch <= current


class Client:
    """A member as it sees itself: its epoch, and by partition where it polls next."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.at, self.ready = epoch, dict[str, int](), 0


class Group:
    """A coordinator and its clients."""

    def __init__(self, seed: int, *, interval: bool) -> None:
        self.h = History(f"intervals {seed} {interval}")
        self.rng: random.Random = self.h.rng
        self.interval = interval
        self.epoch = 0
        self.members: dict[str, int] = {}
        self.owned: dict[str, tuple[str, int]] = {}
        self.target: dict[str, str] = {}
        self.positions: dict[str, int] = {}
        self.clients: dict[str, Client] = {}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.deposed = State({}, {}, {})
        self.late: list[tuple[str, int, str, int]] = []  # copies of commits: member, epoch, where

    @property
    def state(self) -> State:
        return State({**self.members}, {**self.owned}, {**self.positions})

    def step(self) -> None:
        """Let something happen."""
        self.h.now += self.rng.randint(500, 6_000)
        self.late = [each for each in self.late if self.rng.random() < 0.7 or self.take(*each)]
        action = self.rng.choices([*ACTIONS], [*ACTIONS.values()])[0]
        if action == "send":
            where = self.rng.choice(PARTITIONS)
            self.h.send(self._value(where, self.ends[where]), self.ends[where], where)
            self.ends[where] += 1
        elif action == "join":
            self.join(f"m{len(self.clients)}")
        elif action == "depose":
            self.deposed = self.state
        elif self.clients:
            member = self.rng.choice(sorted(self.clients))
            {"go": self.go, "beat": self.beat, "poll": self.poll, "commit": self.commit}[action](
                member
            )

    def _value(self, partition: str, offset: int) -> int:
        return 1_000 * (1 + PARTITIONS.index(partition)) + offset

    def _retarget(self) -> None:
        """Give each partition a member in a new epoch of the group, often another one."""
        self.epoch += 1
        for name in PARTITIONS:
            if self.target.get(name) not in self.members or self.rng.random() < 0.4:
                self.target[name] = self.rng.choice(sorted(self.members) or [""])

    def join(self, member: str) -> None:
        self.members[member] = self.epoch + 1
        self._retarget()
        said = {"epoch": self.epoch}
        self.h.op("join", "ok", self.h.now, self.h.now + 1, member=member, said=said)
        self.clients[member] = Client(self.epoch)

    def go(self, member: str) -> None:
        """Remove a member: it leaves, or its session ends and it does not know of that."""
        if self.members.pop(member, -1) < 0:
            return
        self.owned = {name: by for name, by in self.owned.items() if by[0] != member}
        self._retarget()
        if self.rng.random() < 0.5:
            self.h.op("leave", "ok", self.h.now, self.h.now + 1, member=member)
            del self.clients[member]

    def beat(self, member: str) -> None:
        """Let a member give up what it shall, or else move to the epoch of the group and get what
        no other owns; the answer may be lost."""
        if member not in self.members:
            return
        client = self.clients[member]
        mine = {name for name, by in self.owned.items() if by[0] == member}
        if gone := {name for name in mine if self.target[name] != member}:
            self._learn(
                member, client.epoch, {n: at for n, at in client.at.items() if n not in gone}
            )
            self.owned = {name: by for name, by in self.owned.items() if name not in gone}
            return
        self.members[member] = self.epoch
        for name in PARTITIONS:
            if self.target[name] == member and name not in self.owned:
                self.owned[name] = member, self.epoch
                mine.add(name)
        if (client.epoch, {*client.at}) != (self.epoch, mine) and self.rng.random() < 0.9:
            fresh = {name: self._fetched(member, name) for name in mine - {*client.at}}
            self._learn(member, self.epoch, {**client.at, **fresh})

    def _fetched(self, member: str, partition: str) -> int:
        """Return the position that a new owner fetches, perhaps from a deposed coordinator."""
        old = self.deposed
        answers = old.members.get(member) == self.epoch
        answers = answers and old.accepts(member, self.epoch, partition, interval=False)
        by = old if answers else self.state
        at = by.positions.get(partition, -1)
        about = {"member": member, "epoch": self.epoch, "partition": partition}
        self.h.fetch(at, self.h.now, self.h.now + 2, **about)
        return max(at, 0)

    def _learn(self, member: str, epoch: int, at: dict[str, int]) -> None:
        client, now = self.clients[member], self.h.now
        client.epoch, client.at, client.ready = epoch, at, now + 10
        starts = tuple(GroupPosition(partition=name, offset=each) for name, each in at.items())
        fields = {"member": member, "epoch": epoch, "partitions": tuple(sorted(at))}
        self.h.op("assign", "ok", now + 5, now + 8, **fields, said={"positions": starts})
        self.h.now += 20

    def poll(self, member: str) -> None:
        client = self.clients[member]
        inv, end = self.h.around(client.ready)
        if inv > self.h.now or not client.at:
            return
        client.ready = end + 1
        if self.rng.random() < 0.1:
            self.h.op("poll", "fail", inv, end, member=member)
            return
        where = self.rng.choice(sorted(client.at))
        at, until = client.at[where], min(self.ends[where], client.at[where] + 3)
        self._given(member, inv, end, {where: range(at, until)})
        client.at[where] = max(at, until)

    def _given(
        self, member: str, inv: int, end: int, what: Mapping[str, range], **more: Any
    ) -> None:
        given = tuple(
            Delivered(
                partition=name,
                records=(DeliveredRun(self._value(name, of.start), len(of), of.start),),
            )
            for name, of in what.items()
            if of
        )
        self.h.op("poll", "ok", inv, end, member=member, said={"deliveries": given}, **more)

    def take(self, member: str, epoch: int, partition: str, offset: int) -> bool:
        """Let the coordinator decide a commit; return whether it took it."""
        if not self.state.accepts(member, epoch, partition, interval=self.interval):
            return False
        self.positions[partition] = offset
        return True

    def commit(self, member: str) -> None:
        client = self.clients[member]
        inv, end = self.h.around(client.ready)
        if inv > self.h.now or not client.at:
            return
        client.ready = end + 1
        where = self.rng.choice(sorted(client.at))
        at = max(0, client.at[where] - (self.rng.random() < 0.2))
        asked = member, client.epoch, where, at
        lost = self.rng.random() < 0.2
        if lost and self.rng.random() < 0.5:
            self.late.append(asked)
            taken = False
        else:
            taken = self.take(*asked)
        how: Any = "info" if lost else "ok" if taken else "fail"
        fields = {"positions": (GroupPosition(partition=where, offset=at),)}
        self.h.op("commit", how, inv, end, member=member, epoch=client.epoch, **fields)

    def end(self) -> None:
        """Let one last member own everything and be given what is left."""
        self.h.now += 200_000
        for member in sorted(self.members):
            self.members.pop(member)
        self.owned.clear()
        self.join("d")
        self.deposed = State({}, {}, {})
        self.target = dict.fromkeys(PARTITIONS, "d")
        while {*self.clients["d"].at} != {*PARTITIONS}:
            self.beat("d")
        for name in PARTITIONS:
            at = self.positions.get(name, -1)
            self.h.fetch(at, self.h.now, self.h.now + 2, final=True, partition=name)
        left = {n: range(at, self.ends[n]) for n, at in self.clients["d"].at.items()}
        for _ in range(5):
            self.h.now += 20_000
            self._given("d", self.h.now, self.h.now + 1, left, final=True)
            left = {}


def intervals(seed: int, *, interval: bool = True) -> tuple[list[Op], bool]:
    """Return a history of a group with member epochs; commits are taken from the epoch on in which
    the owner got the partition, or only at its present epoch."""
    group = Group(seed, interval=interval)
    group.join("m0")
    for _ in range(group.rng.randint(80, 160)):
        group.step()
    group.end()
    return group.h.numbered(), False
