"""Random histories of consumer groups of systems that keep their promise, with lost requests and
answers, late effects, zombies, handovers and crashes; and of systems with one planted mistake."""

from __future__ import annotations

import random
from typing import Any, Final

from msgspec.structs import replace

from harness.formats.history import (
    Delivered,
    DeliveredRun,
    GroupPosition,
    GroupRecord,
    GroupState,
    Op,
    OpKind,
    Read,
    RecordRun,
    Send,
)
from harness.formats.run_info import GroupPromise

P: Final = "log-0"
WAIT_US: Final = 50_000
LIMIT: Final = 3
ACKS: Final = GroupPromise(
    kind="acks", counts=True, order="first", ack_wait_ms=50, redelivery_ms=50
)
LIMITED: Final = replace(ACKS, max_deliver=LIMIT)
POSITIONS: Final = GroupPromise(
    kind="positions",
    fenced=True,
    fenced_reads=True,
    exclusive=True,
    epochs_rise=True,
    order="owner",
    redelivery_ms=50,
    rebalance_ms=100,
)
PLANTS: Final = {
    "acks": {
        "forget": "acked-redelivered",
        "drop": "not-redelivered",
        "skip": "undelivered",
        "recount": "delivery-count",
        "hold": "delivery-order",
        "ahead": "position-ahead",
    },
    "limited": {"exceed": "over-delivered"},
    "cut": {"stay": "undelivered"},
    "positions": {
        "forget": "commit-lost",
        "zombie": "zombie-commit",
        "twice": "double-ownership",
        "skip": "group-skip",
        "restart": "epoch-back",
        "ahead": "position-ahead",
        "phantom": "position-phantom",
        "back": "position-back",
        "leave": "group-stuck",
    },
    "states": {"replay": "replay-differs", "replica": "group-replicas-differ"},
}


class History:
    """The lines of a history, an operation at a time; each has a process of its own."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000
        self.lines: list[Op] = []
        self._ops = 0

    def op(
        self, f: OpKind, how: str, inv: int, end: int, *, said: Any = None, **asked: Any
    ) -> None:
        """Add an operation; `said` are fields of its completion only."""
        base: dict[str, Any] = {"op": self._ops, "process": self._ops, "client": "c", "f": f}
        if f != "send" and "reads" not in asked:
            base["group"] = "g"
        self._ops += 1
        self.lines.append(Op(t_us=inv, type="invoke", **base, **asked))
        self.lines.append(Op(t_us=end, type=how, **base, **{**asked, **(said or {})}))

    def around(self, earliest: int = 0) -> tuple[int, int]:
        """Return when an operation with its effect now was invoked and answered."""
        late = 40_000 if self.rng.random() < 0.1 else 3_000
        inv = max(earliest, self.now - self.rng.randint(1, late))
        return inv, self.now + self.rng.randint(1, late)

    def send(self, value: int, offset: int, partition: str = P) -> None:
        inv, end = self.around()
        sent = Send(partition=partition, value=value)
        if self.rng.random() < 0.1:
            self.op("send", "info", inv, end, sends=(sent,))
        else:
            known = Send(partition=partition, value=value, offset=offset)
            self.op("send", "ok", inv, end, sends=(sent,), said={"sends": (known,)})

    def fetch(self, offset: int, inv: int, end: int, partition: str = P, **more: Any) -> None:
        """Add a fetch that states this position of the group."""
        at = (GroupPosition(partition=partition, offset=offset),)
        self.op("position", "ok", inv, end, **{"member": "x", **more}, said={"positions": at})

    def numbered(self) -> list[Op]:
        """Return the lines in the order of time."""
        return sorted(self.lines, key=lambda line: line.t_us)


def queue(
    seed: int, plant: str = "", limit: int = -1, *, cut: bool = False
) -> tuple[list[Op], bool]:
    """Return a history of a queue with acks, which delivers a record at most `limit` times, and
    whether what was planted can be seen in it. With `cut` the log loses its end and goes on."""
    h = History(f"queue {seed} {plant}")
    rng = h.rng
    records: list[int] = []
    due: dict[int, int] = {}  # by offset, when an unsettled record may be delivered again
    times: dict[int, int] = {}
    settled: set[int] = set()
    acked: set[int] = set()
    tried: set[int] = set()
    seen: set[int] = set()
    held: list[tuple[int, int]] = []  # offset and when the poll that returned it ended
    answered: dict[int, list[int]] = {}  # by offset, the counts that polls were told
    begun, late, forgotten, shown, sent, missed = 0, -1, -1, False, 0, range(0)

    def poll(final: bool) -> list[int]:
        nonlocal begun
        again = [at for at, when in due.items() if when <= h.now]
        fresh = [*range(begun, min(len(records), begun + rng.randint(1, 4)))]
        given = [*again, *fresh]
        begun += len(fresh)
        inv, end = h.around()
        inv, end = (h.now, h.now + 1) if final else (inv, end)
        runs = []
        for at in given:
            times[at] = times.get(at, 0) + 1
            due[at] = h.now + WAIT_US
            if 0 <= limit <= times[at]:
                due.pop(at)
            runs.append(DeliveredRun(records[at], 1, at, -1, times[at]))
        if not final and rng.random() < 0.1:
            h.op("poll", "info", inv, end, member=f"m{rng.randint(1, 3)}")
            return []
        held.extend((at, end) for at in given)
        seen.update(given)
        for at in given:
            answered.setdefault(at, []).append(times[at])
        said = {"deliveries": (Delivered(partition=P, records=tuple(runs)),)} if runs else {}
        member = "d" if final else f"m{rng.randint(1, 3)}"
        h.op("poll", "ok", inv, end, member=member, final=final, said=said)
        return given

    def settle(at: int, since: int, f: OpKind, *, sure: bool = False) -> None:
        inv, end = h.around(since)
        if inv > h.now:
            return
        works, how = rng.random() < 0.9, "ok" if rng.random() < 0.85 else "info"
        works, how = (works, how if works else "info") if not sure else (True, "ok")
        if f == "ack":
            tried.add(at)
            if works:
                settled.add(at)
                due.pop(at, None)
                if how == "ok":
                    acked.add(at)
        elif works and at in due:
            due[at] = h.now
        record = DeliveredRun(records[at], 1, at)
        given = (Delivered(partition=P, records=(record,)),)
        h.op(f, how, inv, end, member=f"m{rng.randint(1, 3)}", deliveries=given)

    for step in range(rng.randint(60, 120)):
        h.now += rng.randint(500, 6_000)
        actions = ("send", "poll", "ack", "nack", "crash", "position")
        match rng.choices(actions, (4, 3, 4, 1, 0.3, 0.3))[0]:
            case "send":
                sent += 1
                records.append(sent + 100)
                h.send(records[-1], len(records) - 1)
            case "poll":
                poll(final=False)
            case "ack" | "nack" as f if held:
                settle(*held.pop(rng.randrange(len(held))), f)
            case "crash":
                h.op("crash", "ok", h.now, h.now + 1, member=f"m{rng.randint(1, 3)}")
            case "position":
                kept = [at for at in range(len(records)) if at in due or at >= begun or at == late]
                h.fetch(min(kept, default=len(records)), *h.around())
        if cut and step == 45:
            del records[rng.randint(len(records) // 2, len(records)) :]
            for each in (due, times, answered):
                for at in [at for at in each if at >= len(records)]:
                    del each[at]
            held[:] = [(at, since) for at, since in held if at < len(records)]
            if plant == "stay":
                missed = range(len(records), begun)
            else:
                begun = min(begun, len(records))
        if plant and step > 45 and not shown:
            if plant == "stay":
                shown = any(_placed(h, records[at], at) for at in missed if at < len(records))
            if plant == "forget" and (lost := [at for at in sorted(acked) if at in settled]):
                settled.discard(lost[-1])
                due[lost[-1]] = h.now
                h.now += 100_000  # what gave it back or polls it began long ago
                forgotten, shown = lost[-1], True
            if plant == "drop" and (gone := [a for a in due if a in seen and a not in tried]):
                due.pop(gone[0])
                held[:] = [(at, since) for at, since in held if at != gone[0]]
                shown = True
            if plant == "skip" and begun < len(records):
                shown = _placed(h, records[begun], begun)
                begun += 1
            if plant == "hold" and begun < len(records):
                late, begun, shown = begun, begun + 1, True
    h.now += 200_000
    open_ = [at for at in due if at in answered]
    if plant == "recount" and open_:
        times[open_[0]], due[open_[0]], shown = 0, h.now, True
    full = [at for at, told in answered.items() if len(told) == limit and at not in settled]
    if plant == "exceed" and full:
        due[full[0]], shown = h.now, True
    if late >= 0:
        due[late] = h.now
        shown = any(at > late and 1 in told for at, told in answered.items())
    untried = [at for at in due if at in answered and at not in tried]
    if plant == "ahead" and untried:
        h.fetch(untried[0] + 1, h.now, h.now + 1)
        h.now, shown = h.now + 10, True
    if cut:
        runs = tuple(RecordRun(at, value, 1) for at, value in enumerate(records))
        said = {"reads": (Read(partition=P, start=0, records=runs),)}
        asked = (Read(partition=P, start=0),)
        h.op("poll", "ok", h.now - 10, h.now - 5, final=True, reads=asked, said=said)
    quiet_until = h.now + 130_000
    while h.now < quiet_until:
        given = poll(final=True)
        h.now += 10
        for at in given:
            settle(at, h.now - 5, "ack", sure=True)
        if given or due or begun < len(records):
            quiet_until = h.now + 130_000
        h.now += 20_000
    back = (line.deliveries[0].records[0].offset for line in h.lines if line.f == "nack")
    return h.numbered(), shown and forgotten not in back


def coordinator(seed: int, plant: str = "") -> tuple[list[Op], bool]:
    """Return a history of a group with positions and generations, as `queue` does."""
    h = History(f"coordinator {seed} {plant}")
    rng = h.rng
    count, epoch, owner, position, shown = 0, 0, "", -1, False
    confirmed: list[tuple[int, str]] = []
    known: dict[str, tuple[int, int, int]] = {}  # by member: epoch, where it reads on, when ready
    for step in range(rng.randint(80, 140)):
        h.now += rng.randint(500, 6_000)
        planting = bool(plant) and step > 40 and not shown
        action = rng.choices(("send", "join", "poll", "commit", "leave"), (4, 1, 4, 4, 0.2))[0]
        if action == "send":
            h.send(count + 100, count)
            count += 1
        elif action == "join":
            owner = f"m{rng.randint(1, 4)}"
            if planting and plant == "restart" and epoch > 2:
                epoch, shown = 0, True
                h.now += 100_000
            epoch += 1
            h.op("join", "ok", h.now, h.now + 10, member=owner, said={"epoch": epoch})
            start, told = max(position, 0), position
            mine = [at for at, member in confirmed if member != owner]
            if planting and plant == "back" and position in mine[-1:]:
                before = [at for at in mine if at != position and not _perhaps(h, at)]
                told, shown = (before[-1], True) if before else (told, False)
            h.fetch(told, h.now + 12, h.now + 15, member=owner, epoch=epoch)
            twice = planting and plant == "twice"
            for member in (owner, "m9") if twice else (owner,):
                at = (GroupPosition(partition=P, offset=start),)
                fields = {"member": member, "epoch": epoch, "partitions": (P,)}
                h.op("assign", "ok", h.now + 20, h.now + 30, **fields, said={"positions": at})
            shown = shown or twice
            known[owner] = epoch, start, h.now + 40
            h.now += 50
        elif action == "leave" and known:
            member = rng.choice(sorted(known))
            h.op("leave", "ok", h.now, h.now + 1, member=member)
            known.pop(member)
            owner, epoch = ("", epoch + 1) if member == owner else (owner, epoch)
        elif action == "poll" and known:
            member = rng.choice(sorted(known))
            own, at, ready = known[member]
            some = min(count, at + rng.randint(1, 3))
            inv, end = h.around(ready)
            if inv > h.now:
                continue
            if planting and plant == "skip" and at + 1 < some:
                at, shown = at + 1, _placed(h, at + 100, at)
            elif rng.random() < 0.1:
                h.op("poll", "fail", inv, end, member=member)
                continue
            runs = (DeliveredRun(at + 100, some - at, at),) if some > at else ()
            given = {"deliveries": (Delivered(partition=P, records=runs),)} if runs else {}
            h.op("poll", "ok", inv, end, member=member, said=given)
            known[member] = own, max(at, some), end + 1
        elif action == "commit" and known:
            member = rng.choice(sorted(known))
            own, at, ready = known[member]
            inv, end = h.around(ready)
            current = member == owner and own == epoch
            if planting and plant == "zombie" and member != owner and owner:
                inv, end, current, shown = h.now, h.now + 1, True, True
            if inv > h.now:
                continue
            how = "ok" if current else "fail"
            works = current and rng.random() < 0.95
            how = "info" if rng.random() < 0.1 or (current and not works) else how
            if shown and plant == "zombie" and planting:
                how, works = "ok", True
            where = (GroupPosition(partition=P, offset=at),)
            h.op("commit", how, inv, end, member=member, epoch=own, positions=where)
            position = at if works else position
            if how == "ok":
                confirmed.append((at, member))
            known[member] = own, at, end + 1
    h.now += 200_000
    stated = [at for at, _ in confirmed]
    failed = {line.op for line in h.lines if line.type == "fail"}
    commits = (line for line in h.lines if line.f == "commit" and line.op not in failed)
    asked = {line.positions[0].offset for line in commits}
    if plant == "ahead":
        position, shown = max(asked, default=-1) + 1, True
    if plant == "phantom" and (between := {*range(max(asked, default=0))} - asked):
        position, shown = min(between), True
    if plant == "forget" and len(set(stated)) > 1 and position == stated[-1]:
        earlier = [at for at in stated if at != position]
        position, shown = earlier[-1], not _perhaps(h, earlier[-1])
    end_us = h.now + 80_000
    member, at, epoch = "d", max(position, 0), epoch + 1
    h.op("join", "ok", h.now, h.now + 1, member=member, said={"epoch": epoch})
    start_at = (GroupPosition(partition=P, offset=at),)
    assign = {"member": member, "epoch": epoch, "partitions": (P,)}
    if plant == "leave":
        for each in sorted(known):
            h.op("leave", "ok", h.now, h.now + 1, member=each)
        end_us, shown = h.now + 120_000, any(_placed(h, at + 100, at) for at in range(count))
    else:
        h.op("assign", "ok", h.now + 2, h.now + 3, **assign, said={"positions": start_at})
    h.fetch(position, h.now + 4, h.now + 5, final=True)
    while h.now < end_us:
        h.now += 20_000
        runs = (DeliveredRun(at + 100, count - at, at),) if at < count else ()
        given = {"deliveries": (Delivered(partition=P, records=runs),)} if runs else {}
        h.op("poll", "ok", h.now, h.now + 1, member=member, final=True, said=given)
        end_us, at = (max(end_us, h.now + 60_000), count) if runs else (end_us, at)
    return h.numbered(), shown


def states(seed: int, plant: str = "") -> tuple[list[GroupState], bool]:
    """Return a log of a coordinator, what live states are after parts of it, and what replicas
    keep of a group after as much; and whether what was planted can be seen."""
    rng = random.Random(f"states {seed} {plant}")
    log = [
        GroupRecord(["offset", "g", f"p{rng.randint(0, 3)}"], rng.choice([None, n, n + 1]))
        for n in range(rng.randint(5, 40))
    ]
    lines = [GroupState(offset=n, record=record) for n, record in enumerate(log)]
    for node in ("n1", "n2", "n3"):
        applied = rng.randint(1, len(log))
        made = {record.key[2]: record for record in log[:applied]}
        live = [(r.key, r.value) for r in made.values() if r.value is not None]
        if node == "n2" and plant == "replay":
            key, value = live.pop() if live else (["offset", "g", "p9"], -1)
            live += [(key, value + 1)] if rng.random() < 0.5 or value < 0 else []
        rng.shuffle(live)
        lines.append(GroupState(node=node, applied=applied, live=tuple(live)))
    for node in ("n1", "n2", "n3"):
        applied = rng.randint(1, 2)
        pending = tuple((at, 1) for at in range(applied, applied + 3))
        position, of = applied * 7, {"group": "g", "partition": P, "applied": applied}
        lines.append(GroupState(node=node, position=position, pending=pending, **of))
    last = lines[-1]
    if plant == "replica":
        other = replace(last, node="n4", position=last.position + 1)
        lines.append(other if rng.random() < 0.5 else replace(last, node="n4", pending=()))
    rng.shuffle(lines)
    return lines, bool(plant)


def _placed(h: History, value: int, offset: int) -> bool:
    """Return whether an acknowledgement says that a record is at an offset."""
    ok = (line.sends[0] for line in h.lines if line.f == "send" and line.type == "ok")
    return any((sent.value, sent.offset) == (value, offset) for sent in ok)


def _perhaps(h: History, position: int) -> bool:
    """Return whether a commit of a position may have come late."""
    commits = (line for line in h.lines if line.f == "commit" and line.type == "info")
    return any(line.positions[0].offset == position for line in commits)
