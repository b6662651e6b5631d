"""Lines that say nothing about the log, or nothing that can be understood, among those of a correct
history: they never make it invalid, and lines that do not matter change nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import run_folder_of
from harness.formats.history import Op, Read, RecordRun, Send
from tests.support.checker.agreed import budget
from tests.support.checker.correct_history import History
from tests.support.checker.history_forms import FORMS, as_jepsen, as_tables, edn, written
from tests.support.checker.story import P, Story

VALUES: Final = (
    "{[[1 2]] :a, #{1 2} :b, {:k :v} :c}",
    "#{{:a 1} [2]}",
    "##Inf",
    "[##NaN ##-Inf]",
    '#inst "2026-01-01T00:00:00Z"',
    '#object[java.lang.Object 0x1f "x"]',
    '#"a.*b"',
    "^{:line 1} [1]",
    "1/2",
    "9" * 60,
    "{:a 1, :a 2}",
    "(quote x)",
    "\\newline",
    "#_ 1 2",
    "[" * 300 + "]" * 300,
)
NOISE: Final = (
    "{:type :info, :process :nemesis, :time 0, :f :start, :value %s}",
    "{:type :info, :process :nemesis, :time 0, :f :start, :value nil, :error %s}",
)


def sound(seed: int) -> History:
    """Return a correct history without transactions, which nothing may make invalid."""
    return History(
        seed, jepsen=True, transactions=False, dirty="", groups=False, weak="", deletes=""
    )


def judged(folder: Path, lines: list[str], name: str = "history.edn") -> RunResult:
    folder.mkdir()
    (folder / name).write_text("\n".join(lines) + "\n")
    return check_run(run_folder_of(folder / name, {"delivery": "at-least-once"}))


def lines_of(history: History) -> list[str]:
    return [edn(line) for line in as_jepsen(history.ops, history.seeks)]


def test_lines_that_do_not_matter_change_nothing(tmp_path: Path) -> None:
    for seed in range(budget(12).max_examples):
        rng, lines = random.Random(seed), lines_of(sound(seed))
        before = judged(tmp_path / f"{seed}", list(lines))
        for _ in range(rng.randint(1, 4)):
            noise = rng.choice(NOISE) % rng.choice(VALUES)
            lines.insert(rng.randint(0, len(lines)), noise)
        at = rng.choice([n for n, line in enumerate(lines) if ":error" in line and "x" not in line])
        lines[at] = lines[at][:-1] + f", :node {rng.choice(VALUES)}}}"
        after = judged(tmp_path / f"{seed}-noise", lines)
        assert (after.verdict, after.problems) == (before.verdict, before.problems), seed


DOUBLED: Final = "DOUBLED"


def maps_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the maps in a line, however deep they lie."""
    if isinstance(value, dict) and value:
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list | tuple):
            yield from maps_in(each)


def doubled(line: Any, write: Callable[[Any], str], rng: random.Random) -> str:
    """Return the text of a line in which a map says one of its keys twice."""
    found = rng.choice([*maps_in(line)])
    key, value = rng.choice([*found.items()])
    items = [*found.items()]
    items.insert(rng.randint(0, len(items)), (DOUBLED, rng.choice([value, value, None, 0, "ok"])))
    found.clear()
    found.update(items)
    return write(line).replace(write(DOUBLED), write(key))


@pytest.mark.parametrize("form", ["own", "json", "edn"])
def test_a_line_in_which_a_map_says_a_key_twice_cannot_be_read(tmp_path: Path, form: str) -> None:
    for seed in range(budget(12).max_examples):
        rng, history = random.Random(seed), sound(seed)
        lines = as_jepsen(history.ops, history.seeks)
        lines = [msgspec.to_builtins(op) for op in history.ops] if form == "own" else lines
        write = edn if form == "edn" else json.dumps
        told = [write(line) for line in lines]
        at = rng.randrange(len(lines))
        told[at] = doubled(lines[at], write, rng)
        name = "history.edn" if form == "edn" else "history.jsonl"
        result = judged(tmp_path / f"{seed}", told, name)
        assert result.verdict is Verdict.UNKNOWN, (seed, told[at], result.sentence)
        assert f"line {at + 1} " in result.problems[0], (seed, result.problems)


def contradiction(purged: str) -> list[Op]:
    """Return twelve records that were read, and others in their places; in between an operation
    `purge` with this outcome, if any."""
    s = Story()
    for first in (0, 100):
        s.each(first, 12, at=0)
        s.poll((0, first, 12), start=0, process=2 + first)
        if purged and not first:
            s.op("purge", purged, process=7)  # type: ignore[arg-type]
    return s.history


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("purged", "verdict"),
    [
        ("ok", Verdict.UNKNOWN),
        ("info", Verdict.UNKNOWN),
        ("fail", Verdict.INVALID),
        ("", Verdict.INVALID),
    ],
)
def test_an_operation_that_nobody_knows_between_two_reads_that_contradict_each_other(
    tmp_path: Path, form: str, purged: str, verdict: Verdict
) -> None:
    result = check_run(written(form, tmp_path / "h", contradiction(purged), {}))
    assert result.verdict is verdict, result.sentence
    assert ("purge" in result.sentence) == (verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize("form", FORMS)
def test_what_contradicts_itself_before_such_an_operation_counts(tmp_path: Path, form: str) -> None:
    ops = contradiction("")
    last = ops[-1]
    for kind in ("invoke", "ok"):
        more = {"op": last.op + 1, "process": 7, "f": "purge", "reads": (), "type": kind}
        ops.append(replace(last, t_us=last.t_us + 1, **more))
    result = check_run(written(form, tmp_path / "h", ops, {}))
    # Tables do not say what came before it.
    expected = Verdict.UNKNOWN if form == "tables" else Verdict.INVALID
    assert result.verdict is expected, result.sentence


def goes_on(end: str) -> list[Op]:
    """Return the lines of a history in which process 3 begins an operation although the one before
    ended unknown, or has not ended."""
    *ops, asked, answer = contradiction("")[:26]
    t_us = asked.t_us
    sent = [Send(partition=P, value=value) for value in (50, 51)]
    first = replace(asked, op=50, f="send", process=3, sends=(sent[0],))
    told = [first, replace(first, type="info")] if end else [first]
    again = replace(first, op=51, sends=(sent[1],))
    done = replace(again, type="ok", sends=(replace(sent[1], offset=12),))
    runs = (RecordRun(0, 0, 12), RecordRun(12, 51), RecordRun(13, 50))
    answer = replace(answer, reads=(Read(partition=P, start=0, records=runs),))
    last = [*told, again, done, asked, answer]
    return [*ops, *(replace(op, t_us=t_us + nth) for nth, op in enumerate(last))]


@pytest.mark.parametrize("end", ["info", ""])
@pytest.mark.parametrize("rows", [1, 3, 14, 1000])
@pytest.mark.parametrize("back", [False, True])
def test_it_goes_on_in_any_row_group_of_a_table(
    tmp_path: Path, rows: int, end: str, back: bool
) -> None:
    ops = goes_on(end)
    if back:  # The rows of a table may be in any order.
        ops = [op for number in range(51, -1, -1) for op in ops if op.op == number]
    result = check_run(as_tables(tmp_path, ops, {}, rows))
    assert result.verdict is Verdict.UNKNOWN, result.sentence
    assert "operation of process 3 that begins before" in result.sentence


@pytest.mark.parametrize("form", FORMS)
def test_the_sentence_counts_the_records_of_transactions(tmp_path: Path, form: str) -> None:
    s = Story()
    for nth in range(12):
        s.txn(*((10 * nth + k, 2 * nth + k) for k in range(2)))
    s.poll(*((2 * nth, 10 * nth, 2) for nth in range(12)), start=0)
    result = check_run(written(form, tmp_path / "h", s.history, {}))
    assert result.sentence.startswith("valid: 24 acknowledged records in 1 partition were kept")
