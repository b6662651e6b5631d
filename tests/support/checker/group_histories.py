"""Random histories of consumer groups of systems that keep their promise, with lost requests and
answers, late effects, zombies, handovers and crashes; and of systems with one planted mistake."""

from __future__ import annotations

import random
from typing import Any, Final

from harness.formats.history import Delivered, DeliveredRun, GroupPosition, Op, OpKind, Send
from harness.formats.run_info import GroupPromise

P: Final = "log-0"
WAIT_US: Final = 50_000
ACKS: Final = GroupPromise(kind="acks", counts=True, ack_wait_ms=50, redelivery_ms=50)
POSITIONS: Final = GroupPromise(
    kind="positions", fenced=True, exclusive=True, epochs_rise=True, order="owner", redelivery_ms=50
)
PLANTS: Final = {
    "acks": {"forget": "acked-redelivered", "drop": "not-redelivered", "skip": "undelivered"},
    "positions": {
        "forget": "commit-lost",
        "zombie": "zombie-commit",
        "twice": "double-ownership",
        "skip": "group-skip",
        "restart": "epoch-back",
    },
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
        if f != "send":
            base["group"] = "g"
        self._ops += 1
        self.lines.append(Op(t_us=inv, type="invoke", **base, **asked))
        self.lines.append(Op(t_us=end, type=how, **base, **{**asked, **(said or {})}))

    def around(self, earliest: int = 0) -> tuple[int, int]:
        """Return when an operation with its effect now was invoked and answered."""
        late = 40_000 if self.rng.random() < 0.1 else 3_000
        inv = max(earliest, self.now - self.rng.randint(1, late))
        return inv, self.now + self.rng.randint(1, late)

    def send(self, value: int, offset: int) -> None:
        inv, end = self.around()
        sent = Send(partition=P, value=value)
        if self.rng.random() < 0.1:
            self.op("send", "info", inv, end, sends=(sent,))
        else:
            known = Send(partition=P, value=value, offset=offset)
            self.op("send", "ok", inv, end, sends=(sent,), said={"sends": (known,)})

    def numbered(self) -> list[Op]:
        """Return the lines in the order of time."""
        return sorted(self.lines, key=lambda line: line.t_us)


def queue(seed: int, plant: str = "") -> tuple[list[Op], bool]:
    """Return a history of a queue with acks, and whether what was planted can be seen in it."""
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
    begun, shown = 0, False

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
            runs.append(DeliveredRun(records[at], 1, at, -1, times[at]))
        if not final and rng.random() < 0.1:
            h.op("poll", "info", inv, end, member=f"m{rng.randint(1, 3)}")
            return []
        held.extend((at, end) for at in given)
        seen.update(given)
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
        match rng.choices(("send", "poll", "ack", "nack", "crash"), (4, 3, 4, 1, 0.3))[0]:
            case "send":
                records.append(len(records) + 100)
                h.send(records[-1], len(records) - 1)
            case "poll":
                poll(final=False)
            case "ack" | "nack" as f if held:
                settle(*held.pop(rng.randrange(len(held))), f)
            case "crash":
                h.op("crash", "ok", h.now, h.now + 1, member=f"m{rng.randint(1, 3)}")
        if plant and step > 45 and not shown:
            if plant == "forget" and (lost := [at for at in sorted(acked) if at in settled]):
                settled.discard(lost[-1])
                due[lost[-1]] = h.now
                h.now += 100_000  # what gave it back or polls it began long ago
                shown = not any(line.f == "nack" for line in h.lines)
            if plant == "drop" and (gone := [a for a in due if a in seen and a not in tried]):
                due.pop(gone[0])
                held[:] = [(at, since) for at, since in held if at != gone[0]]
                shown = True
            if plant == "skip" and begun < len(records):
                lost_value = records[begun]
                begun += 1
                ok = (line for line in h.lines if line.type == "ok" and line.f == "send")
                shown = any(line.sends[0].value == lost_value for line in ok)
    h.now += 200_000
    quiet_until = h.now + 100_000 + 1
    while h.now < quiet_until:
        given = poll(final=True)
        h.now += 10
        for at in given:
            settle(at, h.now - 5, "ack", sure=True)
        if given or due or begun < len(records):
            quiet_until = h.now + 110_000
        h.now += 20_000
    return h.numbered(), shown


def coordinator(seed: int, plant: str = "") -> tuple[list[Op], bool]:
    """Return a history of a group with positions and generations, as `queue` does."""
    h = History(f"coordinator {seed} {plant}")
    rng = h.rng
    count, epoch, owner, position, shown = 0, 0, "", -1, False
    confirmed: list[int] = []
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
            start = max(position, 0)
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
                at, shown = at + 1, _placed(h, at)
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
                confirmed.append(at)
            known[member] = own, at, end + 1
    h.now += 200_000
    if plant == "forget" and len(set(confirmed)) > 1 and position == confirmed[-1]:
        earlier = [at for at in confirmed if at != position]
        position, shown = earlier[-1], not _perhaps(h, earlier[-1])
    end_us = h.now + 60_000
    member, at, epoch = "d", max(position, 0), epoch + 1
    h.op("join", "ok", h.now, h.now + 1, member=member, said={"epoch": epoch})
    start_at = (GroupPosition(partition=P, offset=at),)
    assign = {"member": member, "epoch": epoch, "partitions": (P,)}
    h.op("assign", "ok", h.now + 2, h.now + 3, **assign, said={"positions": start_at})
    fetched = (GroupPosition(partition=P, offset=position),)
    h.op(
        "position", "ok", h.now + 4, h.now + 5, member="x", final=True, said={"positions": fetched}
    )
    while h.now < end_us:
        h.now += 20_000
        runs = (DeliveredRun(at + 100, count - at, at),) if at < count else ()
        given = {"deliveries": (Delivered(partition=P, records=runs),)} if runs else {}
        h.op("poll", "ok", h.now, h.now + 1, member=member, final=True, said=given)
        end_us, at = (h.now + 60_000, count) if runs else (end_us, at)
    return h.numbered(), shown


def _placed(h: History, offset: int) -> bool:
    """Return whether an acknowledgement says that a record is at an offset."""
    ok = (line for line in h.lines if line.f == "send" and line.type == "ok")
    return any(line.sends[0].offset == offset for line in ok)


def _perhaps(h: History, position: int) -> bool:
    """Return whether a commit of a position may have come late."""
    commits = (line for line in h.lines if line.f == "commit" and line.type == "info")
    return any(line.positions[0].offset == position for line in commits)
