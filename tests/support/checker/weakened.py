"""Histories from which a machine took, weakened or renamed one piece of what they say.

A history of a correct log, in our own form, as EDN or as JSON lines, loses one piece. What the
checker says of the rest is compared with the slow definitions; besides, nothing may count against
the log."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import validate
from checker.ingest.read_jepsen import ops_in
from checker.ingest.source import Source
from harness.formats.history import Op, Read
from tests.support.checker.agreed import compared
from tests.support.checker.correct_history import History
from tests.support.checker.history_forms import written
from tests.support.checker.story import Story, against

FORMS: Final = ("own", "edn", "json")
Weaken = Callable[[Story, random.Random], bool]


class Weakening(NamedTuple):
    """One piece taken; `honest`: what is left is still the history of the same log."""

    name: str
    apply: Weaken
    honest: bool = True


def _reads(change: Callable[[Read], Read], final: bool | None = None) -> Weaken:
    """Change every read, or those that are final or not."""

    def apply(s: Story, rng: random.Random) -> bool:
        before = s.history
        s.history = [
            replace(op, reads=tuple(map(change, op.reads))) if final in (None, op.final) else op
            for op in before
        ]
        return s.history != before

    return apply


def _ops(change: Callable[[Op], Op | None]) -> Weaken:
    def apply(s: Story, rng: random.Random) -> bool:
        before = s.history
        s.history = [made for op in before if (made := change(op)) is not None]
        return s.history != before

    return apply


def _drop_one(wanted: Callable[[Op], bool], *, completion: bool = False) -> Weaken:

    def apply(s: Story, rng: random.Random) -> bool:
        numbers = sorted({op.op for op in s.history if wanted(op)})
        if not numbers:
            return False
        number = rng.choice(numbers)
        s.history = [
            op for op in s.history if op.op != number or (completion and op.type == "invoke")
        ]
        return True

    return apply


def _last_final(s: Story, rng: random.Random) -> bool:
    finals = [op.op for op in s.history if op.final and op.f == "poll"]
    return bool(finals) and _drop_one(lambda op: op.op == max(finals))(s, rng)


def _reader_stops(s: Story, rng: random.Random) -> bool:
    """Nothing is on record of what a reader did from some operation on; a final reader may get
    nothing once before it goes on."""
    polls = [op for op in s.history if op.f == "poll" and op.type == "invoke" and op.process < 500]
    if not polls:
        return False
    first = rng.choice(polls)
    own = [op.op for op in s.history if op.process == first.process]
    gone = set(own[own.index(first.op) :])
    return _ops(lambda op: None if op.op in gone else op)(s, rng)


def _renumbered(s: Story, rng: random.Random) -> bool:
    numbers = list(range(s.ops))
    rng.shuffle(numbers)
    s.history = [replace(op, op=numbers[op.op]) for op in s.history]
    return True


def _clock_back(s: Story, rng: random.Random) -> bool:
    places = [n for n, op in enumerate(s.history) if op.type == "ok"]
    if not places:
        return False
    s.history = sorted(s.history, key=lambda op: op.t_us)
    place = rng.choice(places)
    s.history[place] = replace(s.history[place], t_us=1)
    s.as_told = True
    return True


def _one_process(s: Story, rng: random.Random) -> bool:
    """Two processes get one number."""
    processes = sorted({op.process for op in s.history})
    if len(processes) < 2:
        return False
    one, other = rng.sample(processes, 2)
    s.history = [replace(op, process=one) if op.process == other else op for op in s.history]
    return True


def _promise(**fields: object) -> Weaken:
    def apply(s: Story, rng: random.Random) -> bool:
        s.run["promise"].update(fields)
        return True

    return apply


WEAKENINGS: Final = (
    Weakening("nothing", lambda s, rng: True),
    Weakening("starts", _reads(lambda read: replace(read, start=-1))),
    Weakening("starts of final reads", _reads(lambda read: replace(read, start=-1), final=True)),
    Weakening("watermarks of answers", _reads(lambda read: replace(read, hw=-1))),
    Weakening("epochs, nodes", _reads(lambda read: replace(read, node=""))),
    Weakening("final marks", _ops(lambda op: replace(op, final=False))),
    Weakening("final reads", _ops(lambda op: None if op.final else op)),
    Weakening("the last final read", _last_final),
    Weakening("a poll", _drop_one(lambda op: op.f == "poll")),
    Weakening("a reader from some poll on", _reader_stops),
    Weakening("an end", _drop_one(lambda op: True, completion=True)),
    Weakening("an operation", _drop_one(lambda op: True), honest=False),
    Weakening("assignments", _ops(lambda op: None if op.f == "assign" else op), honest=False),
    Weakening("order of numbers", _renumbered),
    Weakening("clock", _clock_back),
    Weakening("processes", _one_process, honest=False),
    Weakening("retention", _promise(retention=True)),
    Weakening("compaction", _promise(compaction=True)),
    Weakening("isolation", _promise(isolation="read_uncommitted")),
    Weakening("delivery", _promise(delivery="at-least-once")),
    Weakening("acknowledgements", _promise(acks=1, durable_acks=False)),
)


TRAITS: Final = {"dirty": "", "weak": "", "retries": "", "deletes": ""}
"""What every log of these does; what its histories say differs."""
_POLLS: Final = ("a poll", "the last final read")
_PASSED: Final = {"poll-skip", "lost", "unseen", "vanished"}
"""What a poll that is not on record looks like, if only the polls before say where one stood."""


class Case(NamedTuple):
    """A weakened history and what is known of it."""

    seed: int
    weakening: Weakening
    form: str
    story: Story
    seeks: Collection[int]


def drawn(seed: int) -> Case | None:
    """Return the case of a seed; None if there is nothing to take."""
    rng = random.Random(seed)
    form = rng.choice(FORMS)
    history = History(seed, jepsen=form != "own", turns=(10, 60), **TRAITS)
    s = history.story()
    weakening = rng.choice(WEAKENINGS)
    return Case(seed, weakening, form, s, history.seeks) if weakening.apply(s, rng) else None


def judged(form: str, s: Story, seeks: Collection[int], folder: Path) -> tuple[RunResult, Story]:
    """Return the checker's result of a story in a form, and the story that it was translated to."""
    if form == "own":
        return s.check(folder), s
    made = written(form, folder, s.history, s.run["promise"], seeks)
    s.run["source"] = source = "edn" if form == "edn" else "jepsen"
    file = folder / ("history.edn" if form == "edn" else "history.jsonl")
    s.history = list(ops_in(Source(0, made, "history", file, form=source), ()))
    names = {step.partition for op in s.history for step in (*op.sends, *op.reads)}
    s.partitions, s.run["partitions"] = tuple(names), {name: [] for name in names}
    s.torn = bool(validate(file))
    s.as_told = True
    return check_run(made), s


def wrong(case: Case) -> str:
    """Return the error in the verdict on a case; "" if there is none."""
    with tempfile.TemporaryDirectory() as name:
        result, s = judged(case.form, case.story, case.seeks, Path(name))
    blamed = against(result)
    if case.weakening.name in _POLLS:
        blamed = {name: n for name, n in blamed.items() if name not in _PASSED}
    if case.weakening.honest and result.verdict is Verdict.INVALID and blamed:
        return f"a correct log is invalid: {blamed}"
    return compared(result, s)


def campaign(count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Judge so many cases; how many there were by verdict, form and piece, and what was wrong."""
    tried: Counter[str] = Counter()
    found: list[str] = []
    seed = first
    while tried["all"] < count:
        case = drawn(seed)
        seed += 1
        if case is None:
            continue
        tried.update(("all", f"form {case.form}", f"without {case.weakening.name}"))
        if why := wrong(case):
            found.append(f"seed {case.seed} ({case.weakening.name}, {case.form}): {why}")
    return tried, found
