"""More classes of wrong histories and of near misses (`wrong_histories`): operations that are not
what the reader expects, and ends of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from harness.formats.history import Send
from tests.support.checker.wrong_histories import P, Told

STRANGE: Final = ("purge", "delete-records", "create-topic", "trim", "compact", "alter")


def something_empties_the_log(told: Told, wrong: bool) -> None:
    """Let the log begin again at 0, or later, between two readers. In a near miss an operation of
    an unknown name stands between them; in a wrong history it failed (purge)."""
    rng = told.rng
    told.write(rng.randint(12, 16))
    told.read(5, 0, told.end, states=True)
    outcome = rng.choice(["ok", "info", None])
    name, doer = rng.choice(STRANGE), rng.choice([0, 7])
    more = {} if told.jepsen and rng.random() < 0.5 else {"partitions": (P,)}
    told.do(name, doer, "fail" if wrong else outcome, **more)
    writer = 8 if outcome != "ok" and not wrong else 0
    if rng.random() < 0.5:
        told.log.clear()
        told.end = 0
        for _ in range(rng.randint(4, 8)):
            told.send(writer)
    else:
        gone = rng.randint(1, told.end - 2)
        told.log = {at: value for at, value in told.log.items() if at >= gone}
    if told.jepsen:
        told.seeks.add(told.do("assign", 91, partitions=(P,)))
    told.read(91, 0, told.end, states=True, **({} if told.jepsen else {"final": True}))


def a_process_goes_on(told: Told, wrong: bool) -> None:
    """Let a process do more while an operation of it may still be under way; in a near miss another
    process goes on, or the operation is over."""
    rng = told.rng
    told.write(rng.randint(12, 14))
    over = not wrong and rng.random() < 0.4
    outcome = "fail" if over else rng.choice(["info", None])
    after = 5 if wrong or over else 6
    if rng.random() < 0.5:
        late = Send(partition=P, value=10**5)
        told.do("send", 5, outcome, sends=(late,))
        base = told.end
        told.send(after, at=base)
        if not over and rng.random() < 0.7:
            # It takes effect behind what was sent after it.
            told.log[base + 1], told.end = late.value, base + 2
    else:
        told.read(5, 0, 3, states=False)
        told.do("poll", 5, outcome)
        told.read(after, 3 if over else 6, told.end, states=False)
    told.read_finally(90)


def an_end_of_other_sends(told: Told, wrong: bool) -> None:
    """Let an operation end with sends that it did not begin with; in a near miss with some of them,
    or in another order."""
    rng = told.rng
    told.write(rng.randint(12, 14))
    base = told.end
    sends = [Send(partition=P, value=10**5 + 10 * k, count=rng.choice([1, 2])) for k in range(2)]
    known, at = [], base
    for send in sends:
        for k in range(send.count):
            told.log[at + k] = send.value + k
        known.append(_like(send, offset=at))
        at += send.count
    told.end = at
    ends: list[Sequence[Send]] = [known[::-1], known[:1], known[1:], (), known]
    if wrong:
        changed = {"count": 3, "value": known[0].value + 1, "partition": "other"}
        field = rng.choice([*changed])
        other = _like(known[0], **{field: changed[field]})
        ends = [[other], [other, known[1]], [*known, _like(known[0], value=10**6)]]
    told.do("txn", 5, sends=tuple(sends), done={"sends": tuple(rng.choice(ends))})
    told.read_finally(90)


def _like(send: Send, **fields: Any) -> Send:
    known = {name: getattr(send, name) for name in ("partition", "value", "count", "offset")}
    return Send(**{**known, **fields})


def an_answer_ends_in_the_middle(told: Told, wrong: bool) -> None:
    """Let an answer with records state that the log ends where it ends, below its own HW. In a near
    miss nothing was known up to there: another process had not had its acknowledgement yet, or what
    is there was of a transaction that aborted."""
    rng = told.rng
    told.write(rng.randint(12, 16))
    begin, end = sorted(rng.sample(range(told.end), 2))
    if wrong:
        told.read(5, begin, end, states=rng.random() < 0.7, at_end=True, hw=told.end)
    elif rng.random() < 0.5:
        at = told.end
        aborted = Send(partition=P, value=10**5, count=2)
        told.do("txn", 6, "fail", sends=(aborted,))
        told.read(5, begin, at, states=True, at_end=True, hw=at + 2)
        told.end = at + 3
        told.send()
    else:
        at = told.end
        told.send(6)
        told.read(5, begin, at, states=True, at_end=True, hw=at + 1)
        # The send ends after the poll.
        told.end_last(-3)
    told.read_finally(90)


def the_tail_is_gone(told: Told, wrong: bool) -> None:
    """Let final readers end below records that were read, although retention deletes heads only; in
    a near miss they end where the log ends, or all of it was deleted."""
    rng = told.rng
    told.promise["retention"] = True
    told.write(rng.randint(14, 20))
    told.read(5, 0, told.end, states=rng.random() < 0.5)
    kept = rng.randint(2, 8)
    end = told.end - rng.randint(1, 4) if wrong else told.end
    how = rng.choice(["hw", "at_end", "both"])
    for process in range(90, 90 + rng.randint(1, 2)):
        if not wrong and rng.random() < 0.2:
            told.read(process, 0, 0, final=True, states=True, hw=told.end, log_start=told.end)
            continue
        states = {"hw": end if how != "at_end" else -1, "at_end": how != "hw"}
        where = {"log_start": kept} if rng.random() < 0.5 else {}
        middle = rng.randint(kept + 1, end)
        head = {"hw": states["hw"], "at_end": False}
        told.read(process, kept, middle, final=True, states=True, **where, **head)
        told.read(process, middle, end, final=True, states=True, **where, **states)


def an_acknowledged_record_goes(told: Told, wrong: bool) -> None:
    """Let an acknowledged record go, in one of the forms of this loss; in a near miss the promise
    says that an acknowledgement shows nothing (class E)."""
    rng = told.rng
    told.at_ends = not told.jepsen
    if not wrong:
        told.promise |= {"acks": rng.choice([0, 1]), "durable_acks": False}
    told.write(rng.randint(12, 16))
    for nth in range(rng.randint(1, 2)):
        at = told.send(5)
        if told.watermarks and rng.random() < 0.5:
            told.read(6, at, at, states=True, at_end=rng.random() < 0.5, hw=at)
        del told.log[at]
        how = rng.choice(["overwritten", "behind another", "a hole", "the tail"])
        if how in ("overwritten", "behind another"):
            told.end = at
            told.send(5 if how == "behind another" else 7)
        elif how == "a hole":
            told.send(rng.choice([5, 7]))
        else:
            told.end = at
        if rng.random() < 0.5 and told.end > at:
            told.read(20 + nth, max(0, at - 2), told.end, states=not told.jepsen)
    told.read_finally(90)
